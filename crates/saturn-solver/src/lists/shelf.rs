//! The modes worth having, by runtime: which task fits a gap best.

/// A task in a mode worth having.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    pub(crate) runtime: f64,
    pub(crate) task: u32,
    pub(crate) mode: u16,
}

/// The items of one kind and width, ascending in runtime.
pub(crate) struct Shelf {
    pub(crate) items: Vec<Item>,
    /// For each item, counted from 1: itself, or an item before it from which to look on for an
    /// item that is still there. 0 is the end (a union-find over runs of taken items).
    before: Vec<u32>,
}

impl Shelf {
    #[expect(clippy::cast_possible_truncation, reason = "items are fewer than strategies")]
    pub(crate) fn new(mut items: Vec<Item>) -> Self {
        items.sort_unstable_by(|left, right| left.runtime.total_cmp(&right.runtime));
        Self { before: (0..=items.len() as u32).collect(), items }
    }

    /// How many items are no longer than `runtime`, taken ones included.
    pub(crate) fn num_within(&self, runtime: f64) -> usize {
        self.items.partition_point(|item| item.runtime <= runtime)
    }

    /// The last of the first `count` items that is not taken, and that `may_be` says can be.
    pub(crate) fn last_of(
        &mut self,
        mut count: usize,
        is_taken: &[bool],
        may_be: impl Fn(usize) -> bool,
    ) -> Option<Item> {
        loop {
            count = self.skip_taken(count, is_taken);
            let item = *self.items.get(count.checked_sub(1)?)?;
            if may_be(item.task as usize) {
                return Some(item);
            }
            count -= 1;
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "items are fewer than strategies")]
    fn skip_taken(&mut self, from: usize, is_taken: &[bool]) -> usize {
        let mut at = from;
        while at > 0 {
            let next = self.before[at] as usize;
            if next < at {
                at = next;
            } else if is_taken[self.items[at - 1].task as usize] {
                self.before[at] = at as u32 - 1;
            } else {
                break;
            }
        }
        // Halve the way for later searches.
        let mut walk = from;
        while walk > at {
            let next = self.before[walk] as usize;
            self.before[walk] = at as u32;
            walk = next;
        }
        at
    }
}
