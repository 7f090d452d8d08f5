//! The calls of one job: nearly always one, which needs no memory of its own.

use std::ops::Deref;

/// Numbers of calls, in the order of the stages.
#[derive(Clone, Debug)]
pub(crate) enum Calls {
    One([u32; 1]),
    Many(Vec<u32>),
}

impl Default for Calls {
    fn default() -> Calls {
        Calls::Many(Vec::new())
    }
}

impl Calls {
    pub(crate) fn push(&mut self, call: u32) {
        match self {
            Calls::One([first]) => *self = Calls::Many(vec![*first, call]),
            Calls::Many(calls) if calls.is_empty() => *self = Calls::One([call]),
            Calls::Many(calls) => calls.push(call),
        }
    }
}

impl Deref for Calls {
    type Target = [u32];
    fn deref(&self) -> &[u32] {
        match self {
            Calls::One(call) => call,
            Calls::Many(calls) => calls,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_keep_their_order() {
        let mut calls = Calls::default();
        assert!(calls.is_empty());
        for call in [7, 3, 9] {
            calls.push(call);
        }
        assert_eq!(*calls, [7, 3, 9]);
    }
}
