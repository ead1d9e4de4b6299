//! Files that the demo reads and writes.
//!
//! Files of the same names in the output directory are replaced, as a compiler does with what it made before.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use ddsfile::{AlphaMode, D3D10ResourceDimension, Dds, DxgiFormat, NewDxgiParams};
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder as _, ImageReader, RgbaImage};

use super::pyramid::{LONGEST_SIDE, Product, Pyramid};

/// Reads an image file, PNG or JPEG by its content.
///
/// # Errors
/// The file is missing, broken, of another format or too large; the message names it.
pub fn read(path: &Path) -> Result<RgbaImage> {
    let name = path.display();
    let reader = ImageReader::open(path).with_context(|| format!("{name} can't be opened"))?;
    let mut reader = reader.with_guessed_format().with_context(|| format!("{name} can't be read"))?;
    // The size is checked below; the reader's own limit on memory would refuse large images that are fine.
    reader.no_limits();
    let mut decoder = reader.into_decoder().with_context(|| format!("{name} is no PNG or JPEG image"))?;
    let (width, height) = decoder.dimensions();
    ensure!(
        width.max(height) <= LONGEST_SIDE,
        "{name} has {width} x {height} texels; at most {LONGEST_SIDE} x {LONGEST_SIDE} are taken: make it smaller"
    );
    // A file without a word on orientation, or with a broken one, is taken as it lies.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let mut image = DynamicImage::from_decoder(decoder).with_context(|| format!("{name} is broken"))?;
    image.apply_orientation(orientation);
    Ok(image.into_rgba8())
}

/// Names for the output files of several images, without two the same and without an input's.
pub struct Names {
    taken: HashSet<String>,
    directory: PathBuf,
    inputs: HashSet<PathBuf>,
}

impl Names {
    /// No name is taken yet; outputs go to `directory`.
    pub fn new(directory: &Path, inputs: &[PathBuf]) -> Self {
        let inputs = inputs.iter().filter_map(|input| input.canonicalize().ok()).collect();
        Self { taken: HashSet::new(), directory: directory.into(), inputs }
    }

    /// Whether an output of that name would replace an input.
    fn is_input(&self, name: &str) -> bool {
        Product::ALL.iter().flat_map(|product| ["dds", "png"].map(|kind| (product.name(), kind))).any(
            |(product, kind)| {
                let output = self.directory.join(format!("{name}.{product}.{kind}")).canonicalize();
                output.is_ok_and(|output| self.inputs.contains(&output))
            },
        )
    }

    /// The file's name without folder and extension; with a number where it is taken or would replace an input.
    pub fn of(&mut self, path: &Path) -> String {
        let stem = path.file_stem().map_or_else(|| "image".into(), |stem| stem.to_string_lossy().into_owned());
        let numbered = (2_u64..).map(|number| format!("{stem}-{number}"));
        let free = std::iter::once(stem.clone())
            .chain(numbered)
            .find(|name| !self.taken.contains(name) && !self.is_input(name));
        let name = free.unwrap_or(stem);
        self.taken.insert(name.clone());
        name
    }
}

/// Writes a chain of blocks as a DDS file with a DX10 header, and gives its path.
///
/// # Errors
/// The file can't be written; the message names it.
pub fn write_dds(
    directory: &Path,
    name: &str,
    product: Product,
    pyramid: &Pyramid,
    blocks: &[u32],
    opaque: bool,
) -> Result<PathBuf> {
    let path = directory.join(format!("{name}.{}.dds", product.name()));
    let format = if product == Product::Bc1 { DxgiFormat::BC1_UNorm_sRGB } else { DxgiFormat::BC7_UNorm_sRGB };
    let image = &pyramid.levels()[0];
    let mut dds = Dds::new_dxgi(NewDxgiParams {
        height: image.height,
        width: image.width,
        depth: None,
        format,
        mipmap_levels: Some(pyramid.levels().len() as u32),
        array_layers: None,
        caps2: None,
        is_cubemap: false,
        resource_dimension: D3D10ResourceDimension::Texture2D,
        alpha_mode: if opaque { AlphaMode::Opaque } else { AlphaMode::Straight },
    })
    .with_context(|| format!("no DDS header for {}", path.display()))?;
    let blocks: &[u8] = bytemuck::cast_slice(blocks);
    ensure!(
        dds.data.len() == blocks.len(),
        "{} should hold {} bytes, not {}",
        path.display(),
        dds.data.len(),
        blocks.len()
    );
    dds.data.copy_from_slice(blocks);
    let write = || -> Result<()> {
        let mut file = BufWriter::new(File::create(&path)?);
        dds.write(&mut file)?;
        Ok(file.flush()?)
    };
    write().with_context(|| format!("{} can't be written", path.display()))?;
    Ok(path)
}

/// Writes an image as PNG, and gives its path.
///
/// # Errors
/// The file can't be written; the message names it.
pub fn write_png(directory: &Path, name: &str, image: &RgbaImage) -> Result<PathBuf> {
    let path = directory.join(format!("{name}.png"));
    image.save(&path).with_context(|| format!("{} can't be written", path.display()))?;
    Ok(path)
}

/// Makes the output directory where it is missing.
///
/// # Errors
/// It can't be made; the message names it.
pub fn make_directory(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("the output directory {} can't be made", directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_never_replaced() {
        let directory = std::env::temp_dir().join(format!("abide-names-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let inputs = ["x.png", "x.bc1.png", "y.png"].map(|name| directory.join(name));
        inputs.iter().for_each(|input| fs::write(input, "").unwrap());
        let mut names = Names::new(&directory, &inputs);
        let given = inputs.each_ref().map(|input| names.of(input));
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(given, ["x-2", "x.bc1", "y"]);
    }

    #[test]
    fn names_stay_apart() {
        let mut names = Names::new(Path::new("/nowhere"), &[]);
        let given = ["a/x.png", "b/x.jpg", "x", "y.tar.png"].map(|path| names.of(Path::new(path)));
        assert_eq!(given, ["x", "x-2", "x-3", "y.tar"]);
    }

    #[test]
    fn errors_name_the_file() {
        let error = read(Path::new("no/such/file.png")).expect_err("there is no such file");
        assert!(format!("{error:#}").contains("no/such/file.png"), "{error:#}");
    }
}
