//! Waiting: reports of processes, and changes from outside.

use saturn_engine::{AttemptId, Event, Launcher, News, RankReport, TaskId};

use crate::cases::error::PolicyError;
use crate::cases::outcome::{Held, Span};
use crate::cases::script::Change;
use crate::policies::driver::{Driver, Live};

impl Driver<'_> {
    /// Lets time pass while the policy runs nothing: a solve before the first launch.
    pub(crate) fn pass(&mut self, seconds: f64) -> Result<(), PolicyError> {
        let until_s = self.now_s() + seconds;
        while self.now_s() < until_s {
            self.wait(until_s)?;
        }
        Ok(())
    }

    /// Waits until a gang has ended or jobs have arrived, and for all such events of the same
    /// moment; or until a time. Strategies of jobs that have arrived are measured before it
    /// returns.
    pub(crate) fn wait(&mut self, until_s: f64) -> Result<(), PolicyError> {
        self.wait_once(until_s)?;
        if self.wanted.is_empty() { Ok(()) } else { self.measure() }
    }

    pub(super) fn wait_once(&mut self, until_s: f64) -> Result<(), PolicyError> {
        if (self.is_stopped)() {
            return Err(PolicyError::Interrupted);
        }
        if self.now_s() > self.give_up_s {
            return Err(PolicyError::Endless { policy: self.policy, after_s: self.now_s() });
        }
        let mut is_over = false;
        loop {
            let is_idle = self.world.next_s().is_none()
                && !self.script.has_arrivals()
                && self.away.is_empty();
            if is_idle && !is_over && until_s.is_infinite() {
                return Err(self.stuck("nothing runs"));
            }
            let next_s = self.world.next_s().into_iter().chain(self.script.next_s());
            match next_s.reduce(f64::min) {
                Some(at_s) if at_s <= until_s && !(is_over && at_s > self.now_s()) => {
                    self.world.wait_until(at_s);
                }
                _ if is_over => return Ok(()),
                _ => {
                    self.world.wait_until(until_s);
                    return Ok(());
                }
            }
            while let Some(News::Event(event)) = self.world.poll() {
                is_over |= self.hear(event);
            }
            is_over |= self.change();
        }
    }

    /// Takes in the changes up to now; returns whether there were any.
    pub(super) fn change(&mut self) -> bool {
        let mut has_changed = false;
        while self.script.next_s().is_some_and(|at_s| at_s <= self.now_s())
            && let Some((_, change)) = self.script.take()
        {
            match change {
                Change::Arrive(jobs) => {
                    for job in jobs {
                        self.jobs[job].has_arrived = true;
                    }
                }
                Change::Lose(node) => self.lose(node),
                Change::Return(node) => {
                    let spec = &self.case.nodes[node];
                    self.world.add_node(spec.clone());
                    self.away.remove(&node);
                    self.free[node].extend(0..spec.gpus);
                }
                Change::Slow(node, factor) => {
                    self.world.set_pace(&self.case.nodes[node].name, factor);
                    continue;
                }
            }
            has_changed = true;
        }
        self.has_changed |= has_changed;
        has_changed
    }

    /// A node is lost. Jobs that were trained there go back to their last checkpoints.
    fn lose(&mut self, node: usize) {
        self.world.remove_node(&self.case.nodes[node].name);
        self.away.insert(node);
        let is_on = |live: &Live| live.gang.iter().any(|part| part.node == node);
        let on_node = self.live.iter().filter(|(_, live)| is_on(live));
        let lost: Vec<AttemptId> = on_node.map(|(attempt, _)| *attempt).collect();
        for live in lost.iter().filter_map(|attempt| self.live.remove(attempt)).collect::<Vec<_>>()
        {
            match live.held {
                Held::Training => {
                    self.jobs[live.job].step = self.world.saved_step(TaskId(live.job));
                }
                Held::Trial => self.wanted.push((live.job, live.way.clone())),
            }
            self.ended(live, self.now_s());
        }
        self.free[node].clear();
    }

    /// Takes in a report; returns whether it ended a gang.
    fn hear(&mut self, event: Event) -> bool {
        let now_s = self.world.now_s();
        match event {
            Event::Reported { attempt, report, .. } => {
                let Some(live) = self.live.get_mut(&attempt) else { return false };
                match report {
                    RankReport::Started { step, .. } => {
                        (live.ready_s, live.step, live.told_s) = (Some(now_s), step, now_s);
                    }
                    RankReport::Progress { step, .. } | RankReport::Checkpoint { step, .. } => {
                        (live.step, live.told_s) = (step, now_s);
                    }
                    RankReport::Finished { step, .. } | RankReport::Stopped { step } => {
                        let is_finished = matches!(report, RankReport::Finished { .. });
                        (live.step, live.told_s) = (step, now_s);
                        self.jobs[live.job].step = step;
                        self.jobs[live.job].is_finished = is_finished;
                    }
                    _ => {}
                }
                false
            }
            Event::RankExited { attempt, .. } => {
                let Some(live) = self.live.get_mut(&attempt) else { return false };
                live.num_ranks = live.num_ranks.saturating_sub(1);
                if live.num_ranks > 0 {
                    return false;
                }
                let Some(live) = self.live.remove(&attempt) else { return false };
                self.ended(live, now_s);
                true
            }
            _ => false,
        }
    }

    fn ended(&mut self, live: Live, now_s: f64) {
        for part in &live.gang {
            self.free[part.node].extend(&part.devices);
        }
        if live.held == Held::Training {
            let job = &mut self.jobs[live.job];
            job.is_live = false;
            if job.is_finished {
                job.ended_s = Some(now_s);
            }
        }
        self.spans.push(Span {
            job: live.job,
            held: live.held,
            gpus: live.way.gpus,
            technique: live.way.technique,
            gang: live.gang,
            launched_s: live.launched_s,
            ready_s: live.ready_s,
            ended_s: now_s,
        });
    }
}
