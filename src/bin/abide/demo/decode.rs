//! Blocks back to texels, and how far they are from the image.

use image::RgbaImage;

use super::pyramid::{BLOCK, Level, Product};

/// Decodes one level's blocks.
pub fn decode(product: Product, level: &Level, blocks: &[u32]) -> RgbaImage {
    let mut image = RgbaImage::new(level.width, level.height);
    let columns = level.width.div_ceil(BLOCK);
    let pitch = 4 * BLOCK as usize;
    for (block, at) in blocks.chunks_exact(product.words() as usize).zip(0..) {
        let mut texels = [0; 4 * (BLOCK * BLOCK) as usize];
        match product {
            Product::Bc1 => bcdec_rs::bc1(bytemuck::cast_slice(block), &mut texels, pitch),
            Product::Bc7 => bcdec_rs::bc7(bytemuck::cast_slice(block), &mut texels, pitch),
            Product::Mip => texels[..4].copy_from_slice(bytemuck::cast_slice(block)),
        }
        let (left, top) = (at % columns * BLOCK, at / columns * BLOCK);
        for (texel, i) in texels.chunks_exact(4).zip(0..) {
            let (x, y) = (left + i % BLOCK, top + i / BLOCK);
            if let Some(to) = image.get_pixel_mut_checked(x, y) {
                to.0.copy_from_slice(texel);
            }
        }
    }
    image
}

/// Whether every texel is fully opaque.
pub fn is_opaque(image: &RgbaImage) -> bool {
    image.pixels().all(|texel| texel.0[3] == 255)
}

/// Peak signal-to-noise ratio in decibels; none where the images are the same.
///
/// Over the three colours of opaque images. Where there is alpha, over all four channels with colours weighted by
/// alpha, so that colours which can't be seen don't count.
pub fn psnr(image: &RgbaImage, decoded: &RgbaImage) -> Option<f64> {
    let opaque = is_opaque(image);
    let channels = if opaque { 3 } else { 4 };
    let seen = |texel: &[u8; 4]| {
        let alpha = if opaque { 255 } else { u32::from(texel[3]) };
        let colour = |c: u8| (u32::from(c) * alpha + 127) / 255;
        [colour(texel[0]), colour(texel[1]), colour(texel[2]), u32::from(texel[3])]
    };
    let mut squares = 0_u64;
    for (a, b) in image.pixels().zip(decoded.pixels()) {
        let (a, b) = (seen(&a.0), seen(&b.0));
        squares += a.iter().zip(&b).take(channels).map(|(a, b)| u64::from(a.abs_diff(*b).pow(2))).sum::<u64>();
    }
    let samples = u64::from(image.width()) * u64::from(image.height()) * channels as u64;
    (squares > 0).then(|| 10.0 * (255.0 * 255.0 * samples as f64 / squares as f64).log10())
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::Rgba;

    #[test]
    fn one_step_of_error_is_48_decibels() {
        let image = RgbaImage::from_pixel(5, 3, Rgba([10, 20, 30, 255]));
        let off = RgbaImage::from_pixel(5, 3, Rgba([11, 19, 31, 255]));
        assert_eq!(psnr(&image, &image), None);
        assert!((psnr(&image, &off).expect("they differ") - 48.13).abs() < 0.01);
    }

    #[test]
    fn colours_that_are_not_seen_do_not_count() {
        let image = RgbaImage::from_pixel(2, 2, Rgba([200, 20, 30, 0]));
        let off = RgbaImage::from_pixel(2, 2, Rgba([0, 0, 0, 0]));
        assert_eq!(psnr(&image, &off), None);
    }
}
