//! The owners' caps that may bind: their tasks could hold more devices together than the cap.
//!
//! Where no cap binds, plans are made without them, as fast as ever.

use std::collections::BTreeMap;

use saturn_core::Problem;

/// The caps that may bind, and the tasks that count on them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Caps {
    /// Devices that may be held at once, for each cap.
    pub(crate) max_gpus: Vec<u32>,
    /// The cap on which each task counts; empty if no cap binds.
    of_task: Vec<Option<usize>>,
}

impl Caps {
    /// The caps that may bind, given the most devices that each task can hold.
    pub(crate) fn new(problem: &Problem, most_held: &[u32]) -> Self {
        if problem.owners.is_empty() {
            return Self::default();
        }
        let owners = problem.owners.iter().enumerate();
        let index: BTreeMap<&str, usize> =
            owners.map(|(index, owner)| (owner.name.as_str(), index)).collect();
        let owner_of = |task: usize| {
            problem.tasks[task].owner.as_ref().and_then(|name| index.get(name.as_str()).copied())
        };
        let mut together = vec![0u64; problem.owners.len()];
        for (task, most) in most_held.iter().enumerate() {
            if let Some(owner) = owner_of(task) {
                together[owner] += u64::from(*most);
            }
        }
        let mut max_gpus = Vec::new();
        let mut cap_of = vec![None; problem.owners.len()];
        for (owner, held) in together.iter().enumerate() {
            let most = problem.owners[owner].max_gpus;
            if *held > u64::from(most) {
                cap_of[owner] = Some(max_gpus.len());
                max_gpus.push(most);
            }
        }
        if max_gpus.is_empty() {
            return Self::default();
        }
        let of_task = (0..most_held.len()).map(|task| cap_of[owner_of(task)?]).collect();
        Self { max_gpus, of_task }
    }

    /// Whether some cap may bind.
    pub(crate) fn bind(&self) -> bool {
        !self.max_gpus.is_empty()
    }

    /// The cap on which a task counts, if that may bind.
    #[inline]
    pub(crate) fn of(&self, task: usize) -> Option<usize> {
        self.of_task.get(task).copied().flatten()
    }

    /// The tasks that count on a cap.
    pub(crate) fn tasks_of(&self, cap: usize) -> impl Iterator<Item = usize> + '_ {
        let tasks = self.of_task.iter().enumerate();
        tasks.filter(move |(_, of)| **of == Some(cap)).map(|(task, _)| task)
    }
}
