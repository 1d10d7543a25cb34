//! The agent of a person in a pool that another person drives.
//!
//! The agent runs as its own person, with this person's rights, Python and files. At the pool's door it
//! waits for the driver, which hands it the devices. On these devices the agent starts the ranks of its
//! own person's tasks (`guard`). If the driver dies, the ranks train on, like the ranks of the pool's
//! own agent. When the pool stops, the agent ends its ranks and waits until the pool goes on.
//!
//! The agent submits nothing, and reads nothing of the pool.

use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use saturn_store::with_causes;

use crate::asking::door::{Door, agent_socket};
use crate::asking::sockets::{OpenTo, listen_in, socket_in};
use crate::devices::claims::Claims;
use crate::devices::hardware::Hardware;
use crate::devices::pool::Pool;
use crate::launching::settings::LaunchSettings;
use crate::launching::site::Site;
use crate::outliving::agent::{Beginning, LEAVES, RunAgent};
use crate::outliving::connection::{Connection, Input, listen};
use crate::outliving::guard::Guard;
use crate::outliving::messages::{FromAgentOfRun, FromDriver, GuestSetup, VERSION};
use crate::system::bell::Bell;
use crate::system::clock::{deadline, is_past};
use crate::system::error::RuntimeError;
use crate::system::run_id::new_run_id;

/// How long an agent without ranks waits for a process that drives the pool.
const WAITS: Duration = Duration::from_hours(7 * 24);
/// How often an agent that waits looks whether it is still wanted.
const LOOK: Duration = Duration::from_secs(1);
/// The lock that keeps a person from having two agents in one pool.
const LOCK: &str = "agent.lock";

/// An agent that waits at a door.
#[derive(Debug)]
pub struct GuestAgent {
    door: Door,
    directory: PathBuf,
    settings: LaunchSettings,
    guard: Guard,
    bell: Bell,
    inputs: Option<Receiver<Input>>,
    _lock: File,
}

/// Devices that a driver has handed on.
struct Handed {
    agent: String,
    pool: Pool,
    driver: Connection,
}

impl GuestAgent {
    /// Listens at a door, as `setup` says: one line. `None`: this person has an agent there already.
    pub fn start(setup: &str) -> Result<Option<Self>, RuntimeError> {
        let setup: GuestSetup = serde_json::from_str(setup)
            .map_err(|error| RuntimeError::Request { reason: error.to_string() })?;
        let GuestSetup { door, directory, settings, techniques } = setup;
        let path = directory.join(LOCK);
        let lock = File::create(&path).map_err(RuntimeError::file("open", &path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => {
                return Err(RuntimeError::file("lock", &path)(error));
            }
        }
        let door = Door::find(&door)?;
        let bell = Bell::default();
        let name = agent_socket(geteuid().as_raw());
        let listener = listen_in(door.agents(), &name, door.path(), OpenTo::All)?;
        let inputs = Some(listen(listener, Some(door.host()), bell.clone()));
        let guard = Guard { techniques };
        Ok(Some(Self { door, directory, settings, guard, bell, inputs, _lock: lock }))
    }

    /// Serves one driver after the other, until none has come for long, or the door is gone.
    pub fn serve(mut self) {
        while let Some(inputs) = self.inputs.take()
            && let Some(Handed { agent, pool, driver }) = self.next_driver(&inputs)
        {
            let beginning = Beginning {
                agent,
                site: self.site(),
                settings: self.settings.clone(),
                pool,
                inputs,
                bell: self.bell.clone(),
                driver: Some(driver),
                guard: Some(self.guard.clone()),
            };
            match RunAgent::of(beginning) {
                Ok(serving) => self.inputs = Some(serving.served(|| {})),
                // Its standard error is its log.
                Err(error) => eprintln!("saturn: {}", with_causes(&error)),
            }
        }
        let name = agent_socket(geteuid().as_raw());
        let _ = std::fs::remove_file(socket_in(self.door.agents(), &name));
    }

    fn site(&self) -> Site {
        Site {
            run_dir: self.directory.clone(),
            workers_lock: self.directory.join("workers.lock"),
            parent_logs: self.directory.clone(),
        }
    }

    /// The devices that the next driver hands on; `None` if none comes.
    fn next_driver(&self, inputs: &Receiver<Input>) -> Option<Handed> {
        let agent = new_run_id().ok()?;
        let (mut driver, mut look_at): (Option<Connection>, Instant) = (None, deadline(LOOK));
        let until = deadline(WAITS);
        loop {
            self.bell.wait(LOOK);
            while let Ok(input) = inputs.try_recv() {
                match input {
                    Input::Came(stream) => driver = Some(Connection::to(stream)),
                    Input::Went => driver = None,
                    Input::Said(FromDriver::Hello { version }, _) => {
                        if let Some(driver) = &driver {
                            driver.say(Self::welcome(&agent, version), Vec::new());
                        }
                    }
                    Input::Said(FromDriver::Devices { pool }, files) => {
                        let claims = Claims::handed(&self.directory, files).ok()?;
                        let pool = Pool::of(pool, claims);
                        return Some(Handed { agent, pool, driver: driver? });
                    }
                    Input::Said(..) => {}
                }
            }
            if is_past(until) {
                return None;
            }
            if is_past(look_at) {
                look_at = deadline(LOOK);
                if !self.is_wanted() {
                    return None;
                }
            }
        }
    }

    /// Whether this person has not left, and the door is there.
    fn is_wanted(&self) -> bool {
        let name = agent_socket(geteuid().as_raw());
        let is_member = self.directory.is_dir() && !self.directory.join(LEAVES).exists();
        is_member && socket_in(self.door.agents(), &name).exists()
    }

    fn welcome(agent: &str, version: u32) -> FromAgentOfRun {
        if version != VERSION {
            let reason = format!("the agent speaks version {VERSION}, not {version}");
            return FromAgentOfRun::Refused { reason };
        }
        FromAgentOfRun::Welcome {
            agent: agent.to_owned(),
            hardware: Hardware::none(),
            attempts: Vec::new(),
            is_ready: false,
            stays_s: WAITS.as_secs_f64(),
            is_in_place: true,
            wants_devices: true,
        }
    }
}
