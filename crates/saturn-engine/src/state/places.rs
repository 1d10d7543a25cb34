//! The places of the plan in force that are still to be followed.

use crate::facts::ids::{DeviceId, TaskId};
use crate::facts::plan::Place;
use crate::state::run::State;
use crate::state::task::TaskStatus;

impl State {
    /// The open places of the plan in force, in its order, each with its index in the plan.
    pub fn open_places(&self) -> impl Iterator<Item = (usize, &Place)> {
        let places = self.plan.iter().flat_map(|plan| &plan.places).enumerate();
        places.filter(|(_, place)| self.is_place_open(place))
    }

    /// The next place of a device in the plan in force; `None` if the plan has nothing more for it.
    pub fn next_place_on(&self, device: DeviceId) -> Option<&Place> {
        let plan = self.plan.as_ref()?;
        let mut places =
            self.order.on_device(device).iter().filter_map(|index| plan.places.get(*index));
        places.find(|place| self.is_place_open(place))
    }

    /// Whether a task waits for its place in the plan in force.
    pub(crate) fn has_waiting_place(&self) -> bool {
        let mut open = self.open_places();
        open.any(|(_, place)| self.task(place.task).status == TaskStatus::Waiting)
    }

    /// Whether a place of the plan in force is open: neither over nor impossible by now.
    pub(crate) fn is_place_open(&self, place: &Place) -> bool {
        !is_over(self, place) && !self.order.closed().contains(&place.task)
    }

    /// A task's open places of the plan in force.
    pub(crate) fn open_places_of(&self, task: TaskId) -> impl Iterator<Item = (usize, &Place)> {
        let places = self.plan.as_ref().map_or(&[][..], |plan| &plan.places);
        let of_task = self.order.of_task(task).iter().map(|index| (*index, &places[*index]));
        of_task.filter(|(_, place)| self.is_place_open(place))
    }

    /// The place of a task in the plan in force: the first whose last step is not in the task's
    /// newest checkpoint. `None` if that place can't be followed, or if the task has none.
    pub(crate) fn place_of(&self, task: TaskId) -> Option<usize> {
        let plan = self.plan.as_ref()?;
        let saved_step = self.task(task).checkpoint_step;
        let mut places = self.order.of_task(task).iter();
        let place = places.find(|index| !plan.places[**index].is_done_at(saved_step))?;
        self.is_place_open(&plan.places[*place]).then_some(*place)
    }

    /// Whether a task has a place that is open.
    pub fn has_place(&self, task: TaskId) -> bool {
        self.place_of(task).is_some()
    }
}

/// Whether a place is over: its task has ended, or has done its part of the steps.
pub(crate) fn is_over(state: &State, place: &Place) -> bool {
    state.has_ended(place.task) || place.is_done_at(state.task(place.task).checkpoint_step)
}
