//! Whether the driver has listened all the time, or stood still for a while.
//!
//! A full disk, a shared disk that hangs, a stopped terminal or a debugger can keep the driver's
//! thread from listening. The engine must know: what its ranks said meanwhile waits to be read, and
//! must not count as their silence.

/// A driver that does not look for so long has stood still, seconds. It looks twenty times a second,
/// and before each event.
const STOOD_STILL_S: f64 = 1.0;

/// When the driver looked last.
#[derive(Debug, Default)]
pub(crate) struct Listening {
    /// On the run's clock, seconds; `None` before its first look.
    looked_s: Option<f64>,
}

impl Listening {
    /// The driver looks. Returns the seconds for which it has stood still before, if it has.
    pub(crate) fn look(&mut self, now_s: f64) -> Option<f64> {
        let before_s = self.looked_s.replace(now_s)?;
        Some(now_s - before_s).filter(|for_s| *for_s > STOOD_STILL_S)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_does_not_look_for_a_second_has_stood_still() {
        let mut listening = Listening::default();
        assert_eq!(listening.look(500.0), None, "a resumed run begins so");
        assert_eq!(listening.look(500.5), None);
        assert_eq!(listening.look(620.5), Some(120.0));
        assert_eq!(listening.look(620.5), None, "it is told once");
    }
}
