//! The devices that a run uses: devices of this machine, or devices of a cluster's agents.

use std::collections::BTreeMap;

use crate::cluster::exchange::Exchange;
use crate::devices::claims::Claims;
use crate::devices::hardware::Hardware;
use crate::devices::machine::Machine;
use crate::devices::pool::Pool;
use crate::opening::waiting::claim_when_free;
use crate::opening::watcher::Watcher;
use crate::outliving::starting::Living;
use crate::system::error::RuntimeError;

/// The devices that a run uses.
pub(crate) enum RunDevices {
    /// Devices of this machine.
    Here(Pool),
    /// Devices of this machine, and an agent whose ranks on them have outlived their driver. Both
    /// processes hold the devices.
    Outlived(Box<Living>, Pool),
    /// Devices of a cluster's agents.
    Cluster(Exchange, BTreeMap<u64, Hardware>),
}

impl RunDevices {
    /// Claims devices of this machine. If `wait`, waits until other runs leave them.
    pub(crate) fn here(
        machine: &Machine,
        devices: Option<u32>,
        claims: impl Fn() -> Result<Claims, RuntimeError>,
        wait: bool,
        watcher: &mut Watcher<'_>,
    ) -> Result<(Self, Hardware), RuntimeError> {
        let pool = if wait {
            let Watcher { console, is_interrupted, .. } = watcher;
            claim_when_free(machine, devices, claims, console, is_interrupted)?
        } else {
            machine.claim(devices, claims()?)?
        };
        let hardware = pool.hardware();
        Ok((Self::Here(pool), hardware))
    }

    /// The devices of the agents that an exchange knows.
    pub(crate) fn of(exchange: Exchange) -> Result<(Self, Hardware), RuntimeError> {
        let founders = exchange.founders();
        let hardware = Hardware::of_all(founders.values()).ok_or_else(|| {
            RuntimeError::Request { reason: "the cluster has no agent".to_owned() }
        })?;
        Ok((Self::Cluster(exchange, founders), hardware))
    }
}
