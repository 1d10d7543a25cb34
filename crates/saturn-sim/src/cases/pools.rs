//! A case as a planning problem for nodes of any size, for `saturn whatif`. The answer is the
//! planner's, not the world's.

use saturn_core::{Node, Problem};

use crate::cases::case::Case;
use crate::cases::error::PolicyError;

impl Case {
    /// The same case with other true step times, as on another type of device: `scaled` is given a
    /// group, a technique, a number of devices and the seconds. Strategies for which it gives none
    /// are left out. An evaluation takes longer by a ratio of the group's strategies: `of_ratios`
    /// picks one of two.
    #[must_use]
    pub fn scaled(
        &self,
        scaled: &dyn Fn(&str, &str, u32, f64) -> Option<f64>,
        of_ratios: fn(f64, f64) -> f64,
    ) -> Self {
        let mut case = self.truthful();
        for (name, group) in &mut case.truth.groups {
            let mut ratios = Vec::new();
            for (technique, truth) in &mut group.techniques {
                for (gpus, step_s) in std::mem::take(&mut truth.measured) {
                    let Some(scaled_s) = scaled(name, technique, gpus, step_s) else { continue };
                    truth.measured.insert(gpus, scaled_s);
                    ratios.push(scaled_s / step_s);
                }
            }
            let ratio = ratios.into_iter().filter(|ratio| ratio.is_finite()).reduce(of_ratios);
            if let (Some(evaluating), Some(ratio)) = (&mut group.evaluating, ratio) {
                evaluating.takes_s *= ratio;
            }
        }
        case.truthful()
    }

    /// The tasks by the true step times, as a problem for a node of that many devices; and that
    /// node.
    ///
    /// With `reclaimed_every_s` each node is taken away once in that time, on average, and
    /// replaced at once. Then a task loses a launch and half of a checkpoint interval (or half of
    /// its training, if that is shorter). Its expected runtime T follows from its runtime R without
    /// reclaims to first order (Young 1974, Daly 2006): T = R / (1 − loss / interval).
    ///
    /// Fails with `NoStrategy` if no node of that size can hold a task, and with `Reclaimed` if a
    /// reclaim loses as much as is trained between two reclaims.
    pub fn problem(
        &self,
        gpus: u32,
        reclaimed_every_s: Option<f64>,
    ) -> Result<(Problem, Node), PolicyError> {
        let node = Node::new("n0", gpus, self.gpu_type());
        let case = Self { nodes: vec![node.clone()], ..self.truthful() };
        let steps: Vec<u64> = case.jobs.iter().map(|job| job.steps).collect();
        let mut posed = case.posed(&steps, |_, _| true)?;
        let Some(every_s) = reclaimed_every_s else { return Ok((posed.problem, node)) };
        for (task, job) in posed.problem.tasks.iter_mut().zip(&posed.jobs) {
            let (load_s, _) = case.load_and_save_s(*job);
            for one in &mut task.strategies {
                let loss_s = load_s + case.checkpoint_every_s.min(one.runtime_s) / 2.0;
                if loss_s >= every_s {
                    return Err(PolicyError::Reclaimed { task: task.name.clone(), loss_s });
                }
                one.runtime_s /= 1.0 - loss_s / every_s;
            }
        }
        Ok((posed.problem, node))
    }
}
