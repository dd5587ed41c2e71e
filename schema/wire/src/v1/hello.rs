//! Hello, HelloAck and Inventory.

use std::net::IpAddr;

use holdfast_model::ids::AuthorityId;
use holdfast_model::numbers::{AuthorityEpoch, SessionEpoch};
use holdfast_model::statement::Authority;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::codec::{fits, put, take, within};
use super::scalar::{WireStamp, component};
use crate::error::{DecodeError, EncodeError};
use crate::limits::{
    ADDRESSES_MAX, AGENT_VERSION_BYTES_MAX, APPLIED_MAX, BODY_BYTES_MAX, BYTES_IN_FLIGHT_MAX, CAPABILITIES_MAX,
    FRAME_BYTES_MAX, GATEWAY_BYTES_MAX, GATEWAYS_MAX, HELLO_FRAME_BYTES_MAX, HOSTNAME_BYTES_MAX, KERNEL_BYTES_MAX,
    STATUS_FRAME_BYTES_MAX, UPDATES_IN_FLIGHT_MAX,
};
use crate::message::{Delivery, Hello, HelloAck, Inventory, Kind, SessionLimits};
use crate::negotiate::ProtocolRange;

#[derive(Serialize, Deserialize)]
struct WireHello<'a> {
    protocol_min: u16,
    protocol_max: u16,
    agent_version: &'a str,
    boot_id: [u8; 16],
    applied: Vec<WireApplied>,
    capabilities: Vec<u16>,
    #[serde(borrow)]
    inventory: WireInventory<'a>,
}

#[derive(Serialize, Deserialize)]
struct WireApplied {
    component: u8,
    stamp: WireStamp,
}

#[derive(Serialize, Deserialize)]
struct WireInventory<'a> {
    hostname: &'a str,
    kernel: &'a str,
    addresses: Vec<WireAddress>,
}

#[derive(Serialize, Deserialize)]
enum WireAddress {
    V4([u8; 4]),
    V6([u8; 16]),
}

/// The answer to Hello; later protocols begin with the same fields.
#[derive(Serialize, Deserialize)]
pub(crate) struct WireHelloAck<'a> {
    protocol: u16,
    session_epoch: u64,
    authority_id: [u8; 16],
    authority_epoch: u64,
    liveness_interval_ms: u32,
    body_bytes_max: u32,
    updates_in_flight_max: u16,
    bytes_in_flight_max: u32,
    #[serde(borrow)]
    gateways: Vec<&'a str>,
}

fn inventory_out(kind: Kind, inventory: &Inventory) -> Result<WireInventory<'_>, EncodeError> {
    fits(kind, "hostname", inventory.hostname.len(), HOSTNAME_BYTES_MAX)?;
    fits(kind, "kernel", inventory.kernel.len(), KERNEL_BYTES_MAX)?;
    fits(kind, "list of addresses", inventory.addresses.len(), ADDRESSES_MAX)?;
    let address = |address: &IpAddr| match address {
        IpAddr::V4(v4) => WireAddress::V4(v4.octets()),
        IpAddr::V6(v6) => WireAddress::V6(v6.octets()),
    };
    Ok(WireInventory {
        hostname: &inventory.hostname,
        kernel: &inventory.kernel,
        addresses: inventory.addresses.iter().map(address).collect(),
    })
}

fn inventory_in(kind: Kind, wire: &WireInventory<'_>) -> Result<Inventory, DecodeError> {
    within(kind, "hostname", wire.hostname.len(), HOSTNAME_BYTES_MAX)?;
    within(kind, "kernel", wire.kernel.len(), KERNEL_BYTES_MAX)?;
    within(kind, "list of addresses", wire.addresses.len(), ADDRESSES_MAX)?;
    let address = |address: &WireAddress| match address {
        WireAddress::V4(octets) => IpAddr::from(*octets),
        WireAddress::V6(octets) => IpAddr::from(*octets),
    };
    let addresses: Vec<IpAddr> = wire.addresses.iter().map(address).collect();
    if !addresses.is_sorted_by(|a, b| a < b) {
        return Err(DecodeError::Value { kind, field: "order of addresses" });
    }
    Ok(Inventory { hostname: wire.hostname.to_owned(), kernel: wire.kernel.to_owned(), addresses })
}

pub(super) fn encode_inventory(inventory: &Inventory, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    put(out, Kind::Inventory, STATUS_FRAME_BYTES_MAX, &inventory_out(Kind::Inventory, inventory)?)
}

pub(super) fn decode_inventory(payload: &[u8]) -> Result<Inventory, DecodeError> {
    inventory_in(Kind::Inventory, &take(Kind::Inventory, payload)?)
}

pub(super) fn encode(hello: &Hello, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let kind = Kind::Hello;
    fits(kind, "agent version", hello.agent_version.len(), AGENT_VERSION_BYTES_MAX)?;
    fits(kind, "list of applied states", hello.applied.len(), APPLIED_MAX)?;
    fits(kind, "list of capabilities", hello.capabilities.len(), CAPABILITIES_MAX)?;
    let applied =
        hello.applied.iter().map(|(of, stamp)| WireApplied { component: of.number(), stamp: (*stamp).into() });
    let wire = WireHello {
        protocol_min: hello.protocols.min,
        protocol_max: hello.protocols.max,
        agent_version: &hello.agent_version,
        boot_id: *hello.boot_id.as_bytes(),
        applied: applied.collect(),
        capabilities: hello.capabilities.clone(),
        inventory: inventory_out(kind, &hello.inventory)?,
    };
    put(out, kind, HELLO_FRAME_BYTES_MAX, &wire)
}

pub(super) fn decode(payload: &[u8]) -> Result<Hello, DecodeError> {
    let kind = Kind::Hello;
    let wire: WireHello<'_> = take(kind, payload)?;
    within(kind, "agent version", wire.agent_version.len(), AGENT_VERSION_BYTES_MAX)?;
    within(kind, "list of applied states", wire.applied.len(), APPLIED_MAX)?;
    within(kind, "list of capabilities", wire.capabilities.len(), CAPABILITIES_MAX)?;
    let mut applied = Vec::with_capacity(wire.applied.len());
    for entry in &wire.applied {
        // A component of a later build is a claim that decides nothing: it is left out, not refused.
        if let Ok(of) = component(kind, entry.component) {
            applied.push((of, entry.stamp.stamp(kind)?));
        }
    }
    if !applied.is_sorted_by(|(a, _), (b, _)| a < b) {
        return Err(DecodeError::Value { kind, field: "order of applied states" });
    }
    Ok(Hello {
        protocols: ProtocolRange { min: wire.protocol_min, max: wire.protocol_max },
        agent_version: wire.agent_version.to_owned(),
        boot_id: Uuid::from_bytes(wire.boot_id),
        applied,
        capabilities: wire.capabilities,
        inventory: inventory_in(kind, &wire.inventory)?,
    })
}

/// The fields of an answer as they travel.
pub(crate) fn ack_out(ack: &HelloAck) -> Result<WireHelloAck<'_>, EncodeError> {
    gateways_fit(Kind::HelloAck, &ack.gateways)?;
    Ok(WireHelloAck {
        protocol: ack.protocol,
        session_epoch: ack.session_epoch.raw(),
        authority_id: *ack.authority.id.uuid().as_bytes(),
        authority_epoch: ack.authority.epoch.raw(),
        liveness_interval_ms: ack.liveness_interval_ms,
        body_bytes_max: ack.limits.body_bytes_max,
        updates_in_flight_max: ack.limits.updates_in_flight_max,
        bytes_in_flight_max: ack.limits.bytes_in_flight_max,
        gateways: ack.gateways.iter().map(String::as_str).collect(),
    })
}

/// The answer that fields say, of a gateway that delivers so.
pub(crate) fn ack_in(wire: &WireHelloAck<'_>, delivery: Delivery) -> Result<HelloAck, DecodeError> {
    let kind = Kind::HelloAck;
    let limits = SessionLimits {
        body_bytes_max: wire.body_bytes_max,
        updates_in_flight_max: wire.updates_in_flight_max,
        bytes_in_flight_max: wire.bytes_in_flight_max,
    };
    let bytes = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    within(kind, "body limit", bytes(limits.body_bytes_max), BODY_BYTES_MAX)?;
    within(kind, "limit of bytes in flight", bytes(limits.bytes_in_flight_max), BYTES_IN_FLIGHT_MAX)?;
    within(kind, "limit of updates in flight", usize::from(limits.updates_in_flight_max), UPDATES_IN_FLIGHT_MAX)?;
    Ok(HelloAck {
        protocol: wire.protocol,
        session_epoch: SessionEpoch::from_raw(wire.session_epoch),
        authority: Authority {
            id: AuthorityId::new(Uuid::from_bytes(wire.authority_id)),
            epoch: AuthorityEpoch::from_raw(wire.authority_epoch),
        },
        delivery,
        liveness_interval_ms: wire.liveness_interval_ms,
        limits,
        gateways: gateways_in(kind, &wire.gateways)?,
    })
}

pub(super) fn encode_ack(ack: &HelloAck, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    match ack.delivery {
        Delivery::Push => put(out, Kind::HelloAck, FRAME_BYTES_MAX, &ack_out(ack)?),
        Delivery::Poll => Err(EncodeError::Unspeakable { kind: Kind::HelloAck, field: "delivery by poll" }),
    }
}

pub(super) fn decode_ack(payload: &[u8]) -> Result<HelloAck, DecodeError> {
    ack_in(&take(Kind::HelloAck, payload)?, Delivery::Push)
}

pub(super) fn gateways_fit(kind: Kind, gateways: &[String]) -> Result<(), EncodeError> {
    fits(kind, "list of gateways", gateways.len(), GATEWAYS_MAX)?;
    gateways.iter().try_for_each(|gateway| fits(kind, "gateway", gateway.len(), GATEWAY_BYTES_MAX))
}

pub(super) fn gateways_in(kind: Kind, gateways: &[&str]) -> Result<Vec<String>, DecodeError> {
    within(kind, "list of gateways", gateways.len(), GATEWAYS_MAX)?;
    gateways.iter().try_for_each(|gateway| within(kind, "gateway", gateway.len(), GATEWAY_BYTES_MAX))?;
    Ok(gateways.iter().map(|gateway| (*gateway).to_owned()).collect())
}
