//! When the devices of one node become free, and how placing a gang changes that.

/// Places a gang on the devices of one node, as early as its width allows, and returns its start.
///
/// `free` holds the times at which the devices fall free, ascending, and stays so. Of the devices
/// free at the start, the gang takes those that fell free last, which leaves the earlier ones for
/// others. `gpus` is from 1 to `free.len()`.
#[inline]
pub(crate) fn place(free: &mut [f64], gpus: usize, runtime: f64) -> f64 {
    place_after(free, gpus, 0.0, runtime)
}

/// The same, but not before `earliest`, seconds.
#[inline]
pub(crate) fn place_after(free: &mut [f64], gpus: usize, earliest: f64, runtime: f64) -> f64 {
    let start = free[gpus - 1].max(earliest);
    let mut beyond = gpus;
    while beyond < free.len() && free[beyond] <= start {
        beyond += 1;
    }
    let end = start + runtime;
    let mut write = beyond - gpus;
    while beyond < free.len() && free[beyond] < end {
        free[write] = free[beyond];
        write += 1;
        beyond += 1;
    }
    free[write..write + gpus].fill(end);
    start
}

/// How late a device is that ends at `end` and should end by `target`, in seconds. The square of the
/// excess counts as well, relative to the target: one device that is very late is worse than several
/// that are a little late.
#[inline]
pub(crate) fn lateness(end: f64, target: f64) -> f64 {
    /// Weight of the square.
    const SQUARE: f64 = 20.0;
    let excess = (end - target).max(0.0);
    excess + SQUARE * excess * excess / target.max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gangs_start_when_enough_devices_are_free() {
        let whole = |free: &[f64]| free.iter().map(|time| format!("{time}")).collect::<Vec<_>>();
        let mut free = [0.0; 4];
        assert!(place(&mut free, 3, 10.0) < 1e-12);
        assert_eq!(whole(&free), ["0", "10", "10", "10"]);
        place(&mut free, 1, 4.0);
        assert_eq!(whole(&free), ["4", "10", "10", "10"]);
        assert!((place(&mut free, 2, 1.0) - 10.0).abs() < 1e-12);
        assert_eq!(whole(&free), ["4", "10", "11", "11"]);
    }
}
