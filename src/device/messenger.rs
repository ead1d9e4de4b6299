//! Counts the validation layer's errors, for tests that want none.
//!
//! Installed where `ABIDE_VALIDATION=1` and the loader has VK_EXT_debug_utils. The count is the process's: messages
//! come on whatever thread made the call.

use std::ffi::{CStr, c_void};

use ash::vk;
use parking_lot::Mutex;

use super::error::{Result, check};
use super::quirk;

/// Environment variable that asks for the messenger.
pub const VALIDATION_VARIABLE: &str = "ABIDE_VALIDATION";

/// Errors beyond these are counted, but their text is not kept.
const KEPT: usize = 32;

static ERRORS: Mutex<Errors> = Mutex::new(Errors { count: 0, texts: Vec::new() });

struct Errors {
    count: u64,
    texts: Vec<String>,
}

/// Errors that the validation layer has reported in this process, known wrong ones left out: their number, and the
/// texts of the first 32.
pub fn validation_errors() -> (u64, Vec<String>) {
    let errors = ERRORS.lock();
    (errors.count, errors.texts.clone())
}

/// Whether `ABIDE_VALIDATION=1` asks for the messenger.
pub(super) fn is_wanted() -> bool {
    std::env::var_os(VALIDATION_VARIABLE).is_some_and(|value| value == "1")
}

/// A debug-utils messenger of one instance.
pub(super) struct Messenger {
    functions: ash::ext::debug_utils::Instance,
    raw: vk::DebugUtilsMessengerEXT,
}

impl Messenger {
    /// Installs the messenger; the instance has VK_EXT_debug_utils enabled.
    pub(super) fn new(entry: &ash::Entry, instance: &ash::Instance) -> Result<Self> {
        let functions = ash::ext::debug_utils::Instance::new(entry, instance);
        let info = vk::DebugUtilsMessengerCreateInfoEXT::default()
            .message_severity(
                vk::DebugUtilsMessageSeverityFlagsEXT::ERROR | vk::DebugUtilsMessageSeverityFlagsEXT::WARNING,
            )
            .message_type(vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION)
            .pfn_user_callback(Some(on_message));
        // SAFETY: the extension is enabled, and the callback touches nothing but a static.
        let raw = unsafe { functions.create_debug_utils_messenger(&info, None) };
        Ok(Self { functions, raw: check("vkCreateDebugUtilsMessengerEXT", raw)? })
    }

    /// Takes the messenger out again.
    ///
    /// # Safety
    /// The instance is still alive, and this is called once.
    pub(super) unsafe fn destroy(&self) {
        // SAFETY: the messenger was made by this instance, which is alive.
        unsafe { self.functions.destroy_debug_utils_messenger(self.raw, None) };
    }
}

/// Called by the layers. Never panics, since it is called from C.
unsafe extern "system" fn on_message(
    severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _types: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    _user: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the layer passes a structure that lives until the callback returns, or null.
    let Some(data) = (unsafe { data.as_ref() }) else { return vk::FALSE };
    // SAFETY: the layer's strings end in zero and live as long as the structure.
    let name = unsafe { text(data.p_message_id_name) };
    // SAFETY: as above.
    let message = unsafe { text(data.p_message) };
    if !severity.contains(vk::DebugUtilsMessageSeverityFlagsEXT::ERROR) {
        log::warn!("validation: {name}: {message}");
    } else if quirk::is_noise(&name, &message) {
        log::debug!("known noise of the validation layer: {name}");
    } else {
        log::error!("validation: {name}: {message}");
        let mut errors = ERRORS.lock();
        errors.count += 1;
        if errors.texts.len() < KEPT {
            errors.texts.push(format!("{name}: {message}"));
        }
    }
    vk::FALSE
}

/// The text of a C string; empty for null.
///
/// # Safety
/// `pointer` is null or a string that ends in zero.
unsafe fn text(pointer: *const std::ffi::c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: the caller promises a string that ends in zero.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}
