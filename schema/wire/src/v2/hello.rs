//! HelloAck, which says how a gateway delivers.

use serde::{Deserialize, Serialize};

use crate::error::{DecodeError, EncodeError};
use crate::limits::FRAME_BYTES_MAX;
use crate::message::{Delivery, HelloAck, Kind};
use crate::v1::codec::{put, take};
use crate::v1::hello::{WireHelloAck, ack_in, ack_out};

const KIND: Kind = Kind::HelloAck;

#[derive(Serialize, Deserialize)]
struct WireHelloAck2<'a> {
    #[serde(borrow)]
    first: WireHelloAck<'a>,
    delivery: u8,
}

const fn number(delivery: Delivery) -> u8 {
    match delivery {
        Delivery::Push => 1,
        Delivery::Poll => 2,
    }
}

pub(super) fn encode_ack(ack: &HelloAck, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let wire = WireHelloAck2 { first: ack_out(ack)?, delivery: number(ack.delivery) };
    put(out, KIND, FRAME_BYTES_MAX, &wire)
}

pub(super) fn decode_ack(payload: &[u8]) -> Result<HelloAck, DecodeError> {
    let wire: WireHelloAck2<'_> = take(KIND, payload)?;
    let known = [Delivery::Push, Delivery::Poll].into_iter().find(|delivery| number(*delivery) == wire.delivery);
    ack_in(&wire.first, known.ok_or(DecodeError::Value { kind: KIND, field: "delivery" })?)
}
