//! The virtual cluster behind the interface `Launcher`, in place of the local machine's launcher.

use saturn_core::{Knobs, Placement, Strategy};
use saturn_engine::{AttemptId, LaunchError, LaunchOrder, Launcher, News, Work};

use crate::workloads::truth::Asked;
use crate::world::cluster::World;
use crate::world::gang::Order;

impl Launcher for World {
    fn launch(&mut self, order: LaunchOrder) -> Result<(), LaunchError> {
        let gpu_type =
            order.parts.first().map_or_else(String::new, |part| part.node.gpu_type.clone());
        let gang = order.parts.iter().filter_map(|part| {
            let node = self.number_of(&part.node.name)?.0;
            Some(Placement { node, devices: part.devices.clone() })
        });
        let asked = asked(&order.work);
        let order = Order {
            attempt: order.attempt,
            task: order.task,
            gang: gang.collect(),
            group: order.spec.profile_key,
            gpu_type,
            purpose: order.purpose,
            strategy: order.strategy,
            asked,
            steps: order.steps,
            until_step: order.until_step,
            num_ranks: order.num_ranks,
        };
        self.take_order(order)
    }

    fn stop(&mut self, attempt: AttemptId) {
        self.ask_to_stop(attempt);
    }

    fn until(&mut self, attempt: AttemptId, step: Option<u64>) {
        self.set_until(attempt, step);
    }

    fn go_on(&mut self, attempt: AttemptId, steps: u64) {
        self.let_go_on(attempt, steps);
    }

    fn kill(&mut self, attempt: AttemptId) {
        self.kill_all(attempt);
    }

    /// Lets all events up to the present happen, until one has news for the engine.
    fn poll(&mut self) -> Option<News> {
        while self.next_s().is_some_and(|at_s| at_s <= self.now_s()) {
            if let Some(event) = self.happen() {
                return Some(News::Event(event));
            }
        }
        None
    }
}

/// Every strategy about which an inspection is asked.
fn asked(work: &Work) -> Vec<Asked> {
    let Work::Inspect { techniques, widths } = work else { return Vec::new() };
    let mut asked = Vec::new();
    for technique in techniques {
        for one in widths {
            asked.extend(one.gpus.iter().map(|gpus| {
                let technique = technique.name.clone();
                let strategy = Strategy { technique, gpus: *gpus, knobs: Knobs::new() };
                (strategy, one.gpu_type.clone())
            }));
        }
    }
    asked
}
