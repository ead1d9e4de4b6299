#[path = "common/spirv_val.rs"]
mod spirv_val;
#[test]
fn scan() {
    for levels in 1..=8 {
        let m = abide::scheduler::kernel(levels, None);
        let l = abide::spirv::lower(&m).unwrap_or_else(|e| panic!("{levels}: {e}"));
        spirv_val::validate("scan", &l.words);
        println!("{levels}: {} words", l.words.len());
    }
}
