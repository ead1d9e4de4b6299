//! The tiles of an image: what each makes, what it waits for, and how urgent it is.
//!
//! Pure: knows neither Vulkan nor abide's queues, only abide's levels and tenants as numbers.

use abide::protocol::{CRITICAL, HIGH, IDLE, NORMAL};

use super::pyramid::{Level, Product, Pyramid, TILE};

/// Words of a shader's parameters.
pub const PARAMETERS: usize = 5;

/// Tenant of the tiles at and around the visible rectangle.
pub const VIEW: u32 = 0;
/// Tenant of the tiles that are fetched ahead.
pub const PREFETCH: u32 = 1;

/// A rectangle of the image, in its own texels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rect {
    /// First column.
    pub left: u32,
    /// First row.
    pub top: u32,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

impl Rect {
    /// The quarter of either side around the middle.
    pub fn centre(width: u32, height: u32) -> Self {
        let (w, h) = ((width / 4).max(1), (height / 4).max(1));
        Self { left: (width - w) / 2, top: (height - h) / 2, width: w, height: h }
    }

    /// Steps of its own size between this rectangle and another: 0 where they meet.
    fn steps_to(&self, other: &Self) -> u32 {
        let steps = |a: u32, a_size: u32, b: u32, b_size: u32| {
            let (a, b, a_size) = (u64::from(a), u64::from(b), u64::from(a_size.max(1)));
            let gap = (b + 1).saturating_sub(a + a_size).max((a + 1).saturating_sub(b + u64::from(b_size)));
            // Half its size is a step: the surroundings are a frame, not another screen.
            gap.div_ceil(a_size.div_ceil(2)) as u32
        };
        steps(self.left, self.width, other.left, other.width).max(steps(self.top, self.height, other.top, other.height))
    }
}

/// One tile of one product of one level: a task of one workgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// What it makes.
    pub product: Product,
    /// Index of the mip level that it makes or reads: a mip tile reads the level above.
    pub level: u32,
    /// Which tile of the level, in rows.
    pub index: u32,
    /// Priority level.
    pub urgency: u32,
    /// Tenant.
    pub tenant: u32,
}

/// All tiles of an image, and who waits for whom.
pub struct Plan {
    /// The tiles; what a tile waits for stands before it.
    pub tiles: Vec<Tile>,
    /// How many tiles each waits for.
    pub waits: Vec<u32>,
    /// Which tiles wait for each.
    pub followers: Vec<Vec<u32>>,
}

impl Plan {
    /// Plans an image, of which `visible` is seen first.
    pub fn new(pyramid: &Pyramid, visible: &Rect) -> Self {
        let mut plan = Self { tiles: Vec::new(), waits: Vec::new(), followers: Vec::new() };
        // First mip tile of the level above.
        let mut above = 0;
        let mut larger: Option<&Level> = None;
        for (number, level) in (0..).zip(pyramid.levels()) {
            let first = plan.tiles.len() as u32;
            for index in 0..level.tiles() {
                let (urgency, tenant) = urgency(visible, &footprint(pyramid, level, index));
                let tile = |product| Tile { product, level: number, index, urgency, tenant };
                if let Some(larger) = larger {
                    let sources = if number > 1 { sources(larger, level, index) } else { Vec::new() };
                    plan.add(tile(Product::Mip), sources.into_iter().map(|source| above + source));
                }
            }
            for index in 0..level.tiles() {
                let (urgency, tenant) = urgency(visible, &footprint(pyramid, level, index));
                for product in [Product::Bc1, Product::Bc7] {
                    let source = larger.map(|_| first + index);
                    plan.add(Tile { product, level: number, index, urgency, tenant }, source);
                }
            }
            above = first;
            larger = Some(level);
        }
        plan
    }

    fn add(&mut self, tile: Tile, sources: impl IntoIterator<Item = u32>) {
        let this = self.tiles.len() as u32;
        self.tiles.push(tile);
        self.followers.push(Vec::new());
        let mut waits = 0;
        for source in sources {
            self.followers[source as usize].push(this);
            waits += 1;
        }
        self.waits.push(waits);
    }
}

/// The parameters of a dispatch that starts at a tile.
pub fn parameters(pyramid: &Pyramid, product: Product, level: u32, tile: u32) -> [u32; PARAMETERS] {
    let this = &pyramid.levels()[level as usize];
    let source = if product == Product::Mip { &pyramid.levels()[level as usize - 1] } else { this };
    [source.first(Product::Mip), this.first(product), source.width, source.height, tile]
}

/// Tiles of the larger level that hold what a mip tile reads.
fn sources(larger: &Level, level: &Level, index: u32) -> Vec<u32> {
    let span = |at: u32, size: u32, larger: u32| {
        let last = ((at + 1) * TILE).min(size) * 2;
        // An odd size has a third tap.
        let last = (last - 1 + (larger & 1)).min(larger - 1);
        at * TILE * 2 / TILE..=last / TILE
    };
    let across = span(index % level.tiles_across(), level.width, larger.width);
    let down = span(index / level.tiles_across(), level.height, larger.height);
    down.flat_map(|row| across.clone().map(move |column| row * larger.tiles_across() + column)).collect()
}

/// What a tile shows, in texels of the image itself.
fn footprint(pyramid: &Pyramid, level: &Level, index: u32) -> Rect {
    let image = &pyramid.levels()[0];
    let span = |at: u32, size: u32, whole: u32| {
        let scale = |x: u32| (u64::from(x) * u64::from(whole) / u64::from(size)) as u32;
        let (from, to) = (scale(at * TILE), scale(((at + 1) * TILE).min(size)));
        (from, to - from)
    };
    let (left, width) = span(index % level.tiles_across(), level.width, image.width);
    let (top, height) = span(index / level.tiles_across(), level.height, image.height);
    Rect { left, top, width, height }
}

fn urgency(visible: &Rect, tile: &Rect) -> (u32, u32) {
    match visible.steps_to(tile) {
        0 => (CRITICAL, VIEW),
        1 => (HIGH, VIEW),
        2 => (NORMAL, VIEW),
        _ => (IDLE, PREFETCH),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(width: u32, height: u32) -> (Pyramid, Plan) {
        let pyramid = Pyramid::new(width, height);
        let plan = Plan::new(&pyramid, &Rect::centre(width, height));
        (pyramid, plan)
    }

    #[test]
    fn tiles_wait_for_exactly_what_they_read() {
        for (width, height) in [(1, 1), (3, 5), (17, 1), (333, 130), (129, 256)] {
            let (pyramid, plan) = plan(width, height);
            for (at, tile) in plan.tiles.iter().enumerate() {
                let found: Vec<Tile> = (0..plan.tiles.len())
                    .filter(|&source| plan.followers[source].contains(&(at as u32)))
                    .map(|source| plan.tiles[source])
                    .collect();
                assert_eq!(found.len(), plan.waits[at] as usize);
                let level = &pyramid.levels()[tile.level as usize];
                let mut needed = Vec::new();
                match tile.product {
                    Product::Mip if tile.level > 1 => {
                        let larger = &pyramid.levels()[tile.level as usize - 1];
                        let texels = |index: u32, size: u32, larger: u32| {
                            let (first, last) = (index * TILE, ((index + 1) * TILE).min(size) - 1);
                            let end = if larger == 1 { 0 } else { 2 * last + 1 + (larger & 1) };
                            (2 * first).min(larger - 1)..=end
                        };
                        let across = level.tiles_across();
                        let xs = texels(tile.index % across, level.width, larger.width);
                        let ys = texels(tile.index / across, level.height, larger.height);
                        for y in ys {
                            for x in xs.clone() {
                                needed.push(y / TILE * larger.tiles_across() + x / TILE);
                            }
                        }
                        assert!(found.iter().all(|f| f.product == Product::Mip && f.level + 1 == tile.level));
                    }
                    Product::Mip => {}
                    _ if tile.level > 0 => needed.push(tile.index),
                    _ => {}
                }
                needed.sort_unstable();
                needed.dedup();
                let mut found: Vec<u32> = found.iter().map(|f| f.index).collect();
                found.sort_unstable();
                assert_eq!(found, needed, "{width} x {height}: {tile:?}");
            }
        }
    }

    #[test]
    fn what_is_seen_is_most_urgent() {
        let (_, plan) = plan(2048, 2048);
        // Three products of each level, but the image itself is given.
        assert_eq!(plan.tiles.len(), 3 * (4096 + 1024 + 256 + 64 + 16 + 4 + 6) - 4096);
        for urgency in [CRITICAL, HIGH, NORMAL, IDLE] {
            assert!(plan.tiles.iter().any(|tile| tile.urgency == urgency), "no tile of level {urgency}");
        }
        let at = |index| plan.tiles.iter().find(|t| t.level == 0 && t.index == index).map(|t| (t.urgency, t.tenant));
        assert_eq!(at(32 * 64 + 32), Some((CRITICAL, VIEW)));
        assert_eq!(at(0), Some((IDLE, PREFETCH)));
    }
}
