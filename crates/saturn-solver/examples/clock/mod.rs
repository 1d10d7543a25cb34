//! The clocks that measurements take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use saturn_solver::Clock;

/// Clock ticks in a second, in which Linux counts the time of a process.
const TICKS: f64 = 100.0;
/// Between two looks at what the process has used, seconds.
const LOOK_S: f64 = 0.002;

/// Time on the wall, or on busy machines what the process has used of its cores, over its threads.
pub(crate) struct BenchClock {
    begun: Instant,
    /// Of the process when the clock began, and threads; `None` for time on the wall.
    cpu: Option<(f64, f64)>,
    /// When the process was last looked at and what was seen, as bits.
    looked: AtomicU64,
    seen: AtomicU64,
}

impl BenchClock {
    #[expect(clippy::disallowed_methods, reason = "measuring takes a clock")]
    pub(crate) fn new(is_cpu: bool, threads: usize) -> Self {
        Self {
            begun: Instant::now(),
            cpu: is_cpu.then(|| (used_s(), threads as f64)),
            looked: AtomicU64::new(0f64.to_bits()),
            seen: AtomicU64::new(0f64.to_bits()),
        }
    }
}

impl Clock for BenchClock {
    fn elapsed_s(&self) -> f64 {
        let wall_s = self.begun.elapsed().as_secs_f64();
        let Some((before_s, threads)) = self.cpu else { return wall_s };
        if wall_s - f64::from_bits(self.looked.load(Ordering::Relaxed)) > LOOK_S {
            self.looked.store(wall_s.to_bits(), Ordering::Relaxed);
            let seen = (used_s() - before_s) / threads;
            self.seen.fetch_max(seen.to_bits(), Ordering::Relaxed);
        }
        f64::from_bits(self.seen.load(Ordering::Relaxed))
    }
}

/// Seconds of its cores that this process has used.
fn used_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the process, in parentheses, may hold spaces.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    fields.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / TICKS
}
