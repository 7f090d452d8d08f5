//! The promises.
/// x
pub fn all(_: &mut dyn FnMut() -> Box<dyn FnMut() -> Box<dyn crate::Store>>) {}
