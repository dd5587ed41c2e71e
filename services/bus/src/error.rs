//! What can go wrong with the bus, told apart by what the caller does next.

/// A failed use of the bus.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// No connection could be made at all.
    #[error("cannot connect to NATS at {url}")]
    Connect {
        /// Where.
        url: String,
        /// Why not.
        #[source]
        source: Box<async_nats::ConnectError>,
    },
    /// There is no connection now.
    #[error("there is no connection to NATS")]
    Away,
    /// A stream is not there; the renderer makes it.
    #[error("stream {stream} is not there")]
    NoStream {
        /// Which.
        stream: &'static str,
    },
    /// A stream is there with another configuration, which nobody of us made.
    #[error("stream {stream} has {field} = {found}, wanted {wanted}; delete the stream or repair it")]
    StreamDiffers {
        /// Which.
        stream: &'static str,
        /// What differs.
        field: &'static str,
        /// What the server has.
        found: String,
        /// What it should have.
        wanted: String,
    },
    /// Another hand took messages out of a stream that loses none.
    #[error(
        "stream {stream} was emptied or cut by another hand: {messages} of its {last} messages are left; delete the stream, and it is written again"
    )]
    StreamCut {
        /// Which.
        stream: &'static str,
        /// How many it has.
        messages: u64,
        /// How many were ever put into it.
        last: u64,
    },
    /// The server stores no message, and not because of its place: no room, a limit, a file that is gone.
    #[error("stream {stream} takes no message")]
    StreamRefuses {
        /// Which.
        stream: &'static str,
        /// What the server said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server did not do what was asked, or its answer is not known.
    #[error("NATS did not {doing}")]
    Request {
        /// What was asked.
        doing: &'static str,
        /// What it said, or that it said nothing.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl BusError {
    /// The stable name of the rule that was broken, for people who look it up and programs that tell faults apart.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::Connect { .. } => "nats-unreachable",
            Self::Away => "nats-away",
            Self::NoStream { .. } => "stream-missing",
            Self::StreamDiffers { .. } => "stream-differs",
            Self::StreamCut { .. } => "stream-cut",
            Self::StreamRefuses { .. } => "stream-refuses",
            Self::Request { .. } => "nats-request",
        }
    }
}

impl BusError {
    pub(crate) fn request(doing: &'static str) -> impl FnOnce(Box<dyn std::error::Error + Send + Sync>) -> Self {
        move |source| Self::Request { doing, source }
    }
}

/// Boxes any error as a source.
pub(crate) fn boxed<E: std::error::Error + Send + Sync + 'static>(
    error: E,
) -> Box<dyn std::error::Error + Send + Sync> {
    Box::new(error)
}
