//! What is left of a run is put to a solver as the run itself puts it.

use saturn_core::{Cluster, Node};
use saturn_engine::{Command, Engine, Event, remaining_work};

use crate::idle::{config, submit_long};
use crate::staying::asked;

#[test]
fn what_is_left_is_asked_about_with_the_options_of_the_run() {
    for is_closed in [false, true] {
        let mut engine = Engine::new(config());
        let cluster = Cluster { nodes: vec![Node::new("n0", 1, "cpu")] };
        engine.handle(Event::Begin { cluster }, 0.0);
        let mut decision = engine.handle(submit_long("long", 1000, 0.0, 1, None), 0.0);
        if is_closed {
            let order = crate::idle::order(&decision).expect("it is asked");
            engine.handle(order, 0.0);
            engine.handle(Event::Command { command: Command::Close }, 0.0);
            decision = engine.handle(submit_long("more", 1000, 0.0, 1, None), 1000.0);
        }
        assert_eq!(engine.state().is_closed, is_closed);
        let (_, order) = asked(&decision).expect("it is asked");
        let left = remaining_work(engine.state(), &[], 0.0);
        let gains = (order.min_move_gain, order.min_move_gain_s);
        assert_eq!((left.min_move_gain, left.min_move_gain_s), gains);
        assert_eq!(gains == (0.0, 0.0), is_closed, "further tasks may come: {gains:?}");
        assert_eq!(left.max_switches, order.max_switches);
        assert_eq!(left.min_switch_gain.to_bits(), order.min_switch_gain.to_bits());
    }
}
