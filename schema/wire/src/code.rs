//! The stable numbers of refusals, faults and directives.
//!
//! - A number is never reused and keeps its meaning; one that a build does not know is kept as it is and shown as unknown.

use std::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $kind:ident { $($(#[$each:meta])* $name:ident $number:literal $word:literal,)+ })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $kind {
            $($(#[$each])* $name,)+
            /// A number that this build does not know.
            Unknown(u16),
        }

        impl $kind {
            /// Those that this build knows.
            pub const KNOWN: &'static [Self] = &[$(Self::$name,)+];

            /// The number in frames.
            #[must_use]
            pub const fn number(self) -> u16 {
                match self { $(Self::$name => $number,)+ Self::Unknown(number) => number }
            }

            /// The code with a number.
            #[must_use]
            pub const fn from_number(number: u16) -> Self {
                match number { $($number => Self::$name,)+ other => Self::Unknown(other) }
            }

            /// The word in logs, events and metrics.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)+ Self::Unknown(_) => "unknown" }
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }
    )+};
}

codes! {
    /// Why a side ends a session.
    RefusalCode {
        /// The first message was something else than a Hello.
        WrongFirstMessage 1 "wrong_first_message",
        /// A second Hello came in one session.
        DuplicateHello 2 "duplicate_hello",
        /// No Hello, or no answer to one, in time.
        HelloTimeout 3 "hello_timeout",
        /// The two sides share no protocol.
        NoCommonProtocol 4 "no_common_protocol",
        /// The certificate names a host that is not enrolled, or no longer.
        HostUnknown 5 "host_unknown",
        /// The certificate was revoked.
        CertificateRevoked 6 "certificate_revoked",
        /// A newer session of the same host took over.
        Superseded 7 "superseded",
        /// The gateway has no room; come back later.
        Overloaded 8 "overloaded",
        /// The gateway is going away.
        Draining 9 "draining",
        /// A frame or payload that cannot be read.
        Malformed 10 "malformed",
        /// A frame, body or list above its cap, or more in flight than agreed.
        TooLarge 11 "too_large",
        /// Nothing was heard for the time of three liveness intervals.
        LivenessLost 12 "liveness_lost",
        /// The gateway cannot reach its authority to admit a session.
        AuthorityAway 13 "authority_away",
        /// A message that this side of a session may not send.
        WrongDirection 14 "wrong_direction",
        /// Chunks out of place: another update, another offset, or none expected.
        WrongChunk 15 "wrong_chunk",
        /// Update sequences that do not rise.
        WrongSequence 16 "wrong_sequence",
        /// The gateway stands for another authority than the one pinned, or for an older life of it.
        WrongAuthority 17 "wrong_authority",
        /// More faults than a session survives.
        TooManyFaults 18 "too_many_faults",
        /// The certificate that opened the session is over; dial with the renewed one.
        CertificateExpired 19 "certificate_expired",
    }

    /// What one side saw the other do wrong without ending the session.
    FaultCode {
        /// A message kind that this build does not know was skipped.
        UnknownKind 1 "unknown_kind",
        /// An outcome for an update that this session did not send, or that was answered already.
        OutcomeUnmatched 2 "outcome_unmatched",
        /// An outcome whose component, version or digest is not the one of its update.
        OutcomeMismatch 3 "outcome_mismatch",
        /// An outcome that says applied and names another state as applied.
        OutcomeContradiction 4 "outcome_contradiction",
        /// A signature that is not the sender's.
        BadSignature 5 "bad_signature",
        /// A value out of place in a message that could be read.
        BadValue 6 "bad_value",
        /// A directive that this build does not know was ignored.
        UnknownDirective 7 "unknown_directive",
        /// Something was said more often than its limit allows, and was passed over.
        TooOften 8 "too_often",
        /// A status that is not newer than the last one of its session.
        StaleStatus 9 "stale_status",
    }

    /// What a gateway asks of an agent beside updates.
    DirectiveCode {
        /// Drop the session and dial once.
        Reconnect 1 "reconnect",
        /// The identity is no longer renewed: stop and wait for a new token.
        Reenrol 2 "reenrol",
        /// Say how the host is as a whole, now.
        ReportStatus 3 "report_status",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip_and_unknown_ones_are_kept() {
        for code in RefusalCode::KNOWN {
            assert_eq!(RefusalCode::from_number(code.number()), *code);
        }
        for code in FaultCode::KNOWN {
            assert_eq!(FaultCode::from_number(code.number()), *code);
        }
        assert_eq!(DirectiveCode::from_number(900), DirectiveCode::Unknown(900));
        assert_eq!(DirectiveCode::Unknown(900).number(), 900);
    }
}
