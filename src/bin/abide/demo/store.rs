//! An image's buffers on the device: texels and blocks of all levels, and the way there and back.

use std::time::Duration;

use abide::device::{Buffer, CopyRegion, Device, LaunchQueue, Placement};
use anyhow::{Result, ensure};

use super::pyramid::{Product, Pyramid};

/// Bytes that travel at a time.
const CHUNK: u64 = 16 << 20;
/// How long one copy may take before the device counts as hung.
const COPY_PATIENCE: Duration = Duration::from_secs(30);

/// The buffers of one image.
pub struct Store {
    buffers: [Buffer; 3],
    upload: Buffer,
    download: Buffer,
}

/// All products of an image, in host memory.
pub struct Products([Vec<u32>; 3]);

impl Products {
    /// A product's words, all levels.
    pub fn of(&self, product: Product) -> &[u32] {
        &self.0[product as usize]
    }

    /// How many tiles differ from another way's, over all products and levels.
    pub fn differing_tiles(&self, other: &Self, pyramid: &Pyramid) -> u64 {
        let mut differing = 0;
        for product in Product::ALL {
            let (ours, theirs) = (self.of(product), other.of(product));
            // The image itself isn't made but given.
            let made = pyramid.levels().iter().skip(usize::from(product == Product::Mip));
            for (level, tile) in made.flat_map(|level| (0..level.tiles()).map(move |tile| (level, tile))) {
                let same = level.tile_rows(product, tile).all(|row| ours[row.clone()] == theirs[row]);
                differing += u64::from(!same);
            }
        }
        differing
    }
}

impl Store {
    /// Makes the buffers for an image.
    ///
    /// # Errors
    /// The device hasn't room for them.
    pub fn new(device: &Device, pyramid: &Pyramid) -> Result<Self> {
        let buffer =
            |product: Product| device.buffer(product.name(), u64::from(pyramid.words(product)) * 4, Placement::State);
        let largest = Product::ALL.map(|product| u64::from(pyramid.words(product)) * 4).into_iter().max();
        let chunk = largest.unwrap_or(CHUNK).min(CHUNK);
        Ok(Self {
            buffers: [buffer(Product::Mip)?, buffer(Product::Bc1)?, buffer(Product::Bc7)?],
            upload: device.buffer("upload", chunk, Placement::Inlet)?,
            download: device.buffer("download", chunk, Placement::Outlet)?,
        })
    }

    /// A product's buffer.
    pub fn buffer(&self, product: Product) -> &Buffer {
        &self.buffers[product as usize]
    }

    /// Sets everything to `poison`, so that a tile that doesn't run can't look as if it had, and stores the image.
    ///
    /// # Errors
    /// The device fails.
    pub fn reset(&self, queue: &mut LaunchQueue, texels: &[u32], poison: u32) -> Result<()> {
        for buffer in &self.buffers {
            queue.fill(buffer, poison)?;
        }
        let mut done = 0;
        for chunk in texels.chunks(self.upload.size() as usize / 4) {
            let words = self.upload.mapped().ok_or_else(|| anyhow::anyhow!("the inlet is not mapped"))?;
            words.write(0, chunk);
            words.flush();
            let bytes = size_of_val(chunk) as u64;
            copy(queue, &self.upload, self.buffer(Product::Mip), CopyRegion { from: 0, to: done, bytes })?;
            done += bytes;
        }
        Ok(())
    }

    /// Fetches everything.
    ///
    /// # Errors
    /// The device fails.
    pub fn fetch(&self, queue: &mut LaunchQueue, pyramid: &Pyramid) -> Result<Products> {
        let mut fetch = |product: Product| -> Result<Vec<u32>> {
            let mut words = vec![0; pyramid.words(product) as usize];
            let mut done = 0;
            for chunk in words.chunks_mut(self.download.size() as usize / 4) {
                let bytes = size_of_val(chunk) as u64;
                copy(queue, self.buffer(product), &self.download, CopyRegion { from: done, to: 0, bytes })?;
                let source = self.download.mapped().ok_or_else(|| anyhow::anyhow!("the outlet is not mapped"))?;
                source.read(0, chunk);
                done += bytes;
            }
            Ok(words)
        };
        Ok(Products([fetch(Product::Mip)?, fetch(Product::Bc1)?, fetch(Product::Bc7)?]))
    }
}

/// Copies and waits for it.
fn copy(queue: &mut LaunchQueue, from: &Buffer, to: &Buffer, region: CopyRegion) -> Result<()> {
    let launch = queue.copy(from, to, &[region])?;
    let ended = queue.wait(launch, COPY_PATIENCE)?;
    ensure!(
        ended,
        "a copy of {} bytes from {} to {} hasn't ended within {COPY_PATIENCE:?}",
        region.bytes,
        from.name(),
        to.name()
    );
    Ok(())
}
