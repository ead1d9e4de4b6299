//! Which of the binary's shaders makes what.

use anyhow::{Context as _, Result};

use super::pyramid::Product;
use crate::shader::{SHADERS, Shader};

/// The shader that makes a product.
///
/// # Errors
/// The binary was built without it.
pub fn shader(product: Product) -> Result<&'static Shader> {
    let name = product.name();
    SHADERS.iter().find(|shader| shader.name == name).with_context(|| format!("shaders/{name}.wgsl isn't built in"))
}
