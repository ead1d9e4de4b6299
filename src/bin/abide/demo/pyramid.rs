//! An image's mip levels and where each lies in the device's buffers.
//!
//! Knows sizes and offsets only. Three buffers hold a whole chain each, the largest level first: texels (one word each),
//! BC1 blocks (two words) and BC7 blocks (four). Levels are cut into tiles of the same size in all three.

use std::ops::Range;

/// Texels along a side of a tile; the shaders' constant.
pub const TILE: u32 = 32;
/// Texels along a side of a block.
pub const BLOCK: u32 = 4;
/// The longest side that an image may have.
pub const LONGEST_SIDE: u32 = 16_384;

/// What is made of texels, and by which shader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Product {
    /// Texels of the next mip level.
    Mip,
    /// BC1 blocks.
    Bc1,
    /// BC7 blocks.
    Bc7,
}

impl Product {
    /// All of them, in the order in which a level's are made.
    pub const ALL: [Self; 3] = [Self::Mip, Self::Bc1, Self::Bc7];

    /// The product as one lower-case word, which is its shader's name too.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mip => "mip",
            Self::Bc1 => "bc1",
            Self::Bc7 => "bc7",
        }
    }

    /// Texels along a side of one element: a texel or a block.
    pub fn side(self) -> u32 {
        if self == Self::Mip { 1 } else { BLOCK }
    }

    /// Words of an element.
    pub fn words(self) -> u32 {
        match self {
            Self::Mip => 1,
            Self::Bc1 => 2,
            Self::Bc7 => 4,
        }
    }

    fn index(self) -> usize {
        self as usize
    }
}

/// A mip level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Width in texels.
    pub width: u32,
    /// Height in texels.
    pub height: u32,
    first: [u32; 3],
}

impl Level {
    /// First word of the level in a product's buffer.
    pub fn first(&self, product: Product) -> u32 {
        self.first[product.index()]
    }

    /// Words that the level takes in a product's buffer.
    pub fn words(&self, product: Product) -> u32 {
        self.columns(product) * self.height.div_ceil(product.side()) * product.words()
    }

    /// The level's words in a product's buffer.
    pub fn range(&self, product: Product) -> Range<usize> {
        let first = self.first(product) as usize;
        first..first + self.words(product) as usize
    }

    /// Tiles in a row of them.
    pub fn tiles_across(&self) -> u32 {
        self.width.div_ceil(TILE)
    }

    /// Rows of tiles.
    pub fn tiles_down(&self) -> u32 {
        self.height.div_ceil(TILE)
    }

    /// All tiles.
    pub fn tiles(&self) -> u32 {
        self.tiles_across() * self.tiles_down()
    }

    /// The words of one tile, a range for each row of elements.
    pub fn tile_rows(&self, product: Product, tile: u32) -> impl Iterator<Item = Range<usize>> + use<> {
        let (side, words, columns) = (product.side(), product.words(), self.columns(product));
        let (left, top) = (tile % self.tiles_across() * TILE, tile / self.tiles_across() * TILE);
        let (right, bottom) = ((left + TILE).min(self.width), (top + TILE).min(self.height));
        let (from, to) = (left / side, right.div_ceil(side));
        let first = self.first(product);
        (top / side..bottom.div_ceil(side)).map(move |row| {
            let start = first + row * columns * words;
            (start + from * words) as usize..(start + to * words) as usize
        })
    }

    fn columns(&self, product: Product) -> u32 {
        self.width.div_ceil(product.side())
    }
}

/// All mip levels of an image, down to a single texel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pyramid {
    levels: Vec<Level>,
}

impl Pyramid {
    /// Levels of an image whose sides are from 1 to [`LONGEST_SIDE`] texels long.
    pub fn new(width: u32, height: u32) -> Self {
        debug_assert!(width.min(height) > 0 && width.max(height) <= LONGEST_SIDE, "{width} x {height}");
        let mut levels: Vec<Level> = Vec::new();
        let (mut width, mut height, mut first) = (width, height, [0; 3]);
        loop {
            let level = Level { width, height, first };
            levels.push(level);
            if width == 1 && height == 1 {
                return Self { levels };
            }
            for product in Product::ALL {
                first[product.index()] += level.words(product);
            }
            (width, height) = ((width / 2).max(1), (height / 2).max(1));
        }
    }

    /// The levels, the image itself first.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// Words of a product's buffer.
    pub fn words(&self, product: Product) -> u32 {
        self.levels.last().map_or(0, |last| last.first(product) + last.words(product))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_halve_down_to_one_texel() {
        let sizes = |w, h| Pyramid::new(w, h).levels().iter().map(|l| (l.width, l.height)).collect::<Vec<_>>();
        assert_eq!(sizes(1, 1), [(1, 1)]);
        assert_eq!(sizes(3, 5), [(3, 5), (1, 2), (1, 1)]);
        assert_eq!(sizes(17, 1), [(17, 1), (8, 1), (4, 1), (2, 1), (1, 1)]);
        assert_eq!(Pyramid::new(LONGEST_SIDE, 1).levels().len(), 15);
    }

    #[test]
    fn the_largest_image_fits_word_offsets() {
        let pyramid = Pyramid::new(LONGEST_SIDE, LONGEST_SIDE);
        assert_eq!(pyramid.words(Product::Mip), 357_913_941);
        // The smallest two levels still take a block each.
        assert_eq!(pyramid.words(Product::Bc7), (357_913_941 - 5) / 16 * 4 + 8);
    }

    #[test]
    fn tiles_cover_every_word_once() {
        for (width, height) in [(1, 1), (3, 5), (17, 1), (100, 33), (64, 64)] {
            let pyramid = Pyramid::new(width, height);
            for product in Product::ALL {
                let mut seen = vec![0; pyramid.words(product) as usize];
                for level in pyramid.levels() {
                    for row in (0..level.tiles()).flat_map(|tile| level.tile_rows(product, tile)) {
                        seen[row].iter_mut().for_each(|count| *count += 1);
                    }
                }
                assert!(seen.iter().all(|&count| count == 1), "{width} x {height}, {}", product.name());
            }
        }
    }
}
