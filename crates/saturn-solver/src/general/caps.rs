//! The calendars of owners' caps: how many more devices an owner's gangs may hold at any time.

use crate::general::instance::Instance;
use crate::problem::calendar::Calendar;
use crate::problem::caps::Caps;

/// For each cap that may bind, a calendar of the devices that may be held.
pub(crate) struct CapCalendars<'a> {
    caps: &'a Caps,
    calendars: Vec<Calendar>,
}

impl<'a> CapCalendars<'a> {
    pub(crate) fn new(instance: &Instance<'a>) -> Self {
        let caps = &instance.model.caps;
        let calendars = caps.max_gpus.iter().map(|most| Calendar::new(u64::from(*most), 0.0));
        Self { caps, calendars: calendars.collect() }
    }

    /// Forgets all gangs.
    pub(crate) fn clear(&mut self) {
        self.calendars.iter_mut().for_each(|calendar| calendar.clear(0.0));
    }

    /// Counts a gang of `gpus` devices. Running tasks may hold more devices than the cap.
    pub(crate) fn hold(&mut self, task: usize, gpus: u32, start: f64, end: f64) {
        if let Some(cap) = self.caps.of(task) {
            self.calendars[cap].hold(u64::from(gpus), start, end);
        }
    }

    /// The first time from `ready` on at which a gang of `gpus` devices keeps the cap of its task for
    /// `lasts` seconds and could start on its nodes, of which `on_nodes` says when after a given time
    /// that is.
    #[inline]
    pub(crate) fn earliest(
        &self,
        (task, gpus): (usize, u32),
        ready: f64,
        lasts: f64,
        on_nodes: impl Fn(f64) -> f64,
    ) -> f64 {
        let Some(cap) = self.caps.of(task) else { return on_nodes(ready) };
        let mut start = ready;
        loop {
            let of_nodes = on_nodes(start);
            start = self.calendars[cap].earliest(u64::from(gpus), of_nodes, lasts);
            if start <= of_nodes {
                return start;
            }
        }
    }

    /// From when on a task's owner may hold so many more devices for good.
    pub(crate) fn free_for_good(&self, task: usize, gpus: u32) -> f64 {
        let cap = self.caps.of(task);
        cap.map_or(0.0, |cap| self.calendars[cap].free_for_good(u64::from(gpus)))
    }
}
