//! Reading a request's body within bounds of bytes and of time.
//!
//! - A body may pause, but not crawl: it has [`PAUSE_MAX`], and a second more for every [`BYTES_PER_SECOND_MIN`] that came.
//! - Bytes are kept as they come; nothing is reserved on a client's word.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::time::Instant;

/// How long a body of no bytes may take.
pub const PAUSE_MAX: Duration = Duration::from_secs(10);
/// The slowest that a long body may come: 2 Mbit/s.
pub const BYTES_PER_SECOND_MIN: u64 = 256 * 1024;

/// Why a body was not read to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BodyError {
    /// It crawls.
    #[error("the body comes too slowly")]
    Slow,
    /// The connection broke, or the body is no body.
    #[error("the body does not come to its end")]
    Broken,
}

/// A body on its way.
#[derive(Debug)]
pub struct PacedBody {
    stream: BodyDataStream,
    began: Instant,
    bytes: Vec<u8>,
}

impl PacedBody {
    /// Nothing is read yet; the time runs.
    #[must_use]
    pub fn new(body: Body) -> Self {
        Self { stream: body.into_data_stream(), began: Instant::now(), bytes: Vec::new() }
    }

    /// Reads until the end or until there are more than `bytes_max`; whether it was the end.
    ///
    /// # Errors
    /// [`BodyError`].
    pub async fn read_to(&mut self, bytes_max: usize) -> Result<bool, BodyError> {
        while self.bytes.len() <= bytes_max {
            let deadline = self.began + allowance(self.bytes.len());
            match tokio::time::timeout_at(deadline, self.stream.next()).await {
                Ok(Some(Ok(chunk))) => self.bytes.extend_from_slice(&chunk),
                Ok(Some(Err(_))) => return Err(BodyError::Broken),
                Ok(None) => return Ok(true),
                Err(_elapsed) => return Err(BodyError::Slow),
            }
        }
        Ok(false)
    }

    /// Reads on and keeps nothing, to the end or so many bytes more, so that who sends them comes to read the answer.
    pub async fn waste_to(&mut self, bytes_max: usize) {
        let (mut wasted, kept) = (0, self.bytes.len());
        while wasted < bytes_max {
            let deadline = self.began + allowance(kept + wasted);
            match tokio::time::timeout_at(deadline, self.stream.next()).await {
                Ok(Some(Ok(chunk))) => wasted += chunk.len(),
                // The answer is the same whether more would come or not.
                Ok(Some(Err(_)) | None) | Err(_) => return,
            }
        }
    }

    /// What was read.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.bytes.into()
    }
}

/// How long so many bytes may take.
fn allowance(bytes: usize) -> Duration {
    let millis = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_mul(1_000) / BYTES_PER_SECOND_MIN;
    PAUSE_MAX + Duration::from_millis(millis)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;

    use super::*;

    /// A body that gives a piece of so many bytes every so often, so many times.
    fn body(piece: usize, every: Duration, count: usize) -> PacedBody {
        let pieces = stream::unfold(0, move |sent| async move {
            tokio::time::sleep(every).await;
            (sent < count).then(|| (Ok::<_, Infallible>(Bytes::from(vec![7; piece])), sent + 1))
        });
        PacedBody::new(Body::from_stream(pieces))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_read_to_its_end_or_to_one_piece_beyond_the_limit() {
        let mut whole = body(10, Duration::from_millis(1), 10);
        assert_eq!(whole.read_to(100).await, Ok(true));
        assert_eq!(whole.into_bytes().len(), 100);
        let mut more = body(10, Duration::from_millis(1), 10);
        assert_eq!(more.read_to(50).await, Ok(false));
        assert_eq!(more.read_to(100).await, Ok(true));
        let mut wasted = body(10, Duration::from_millis(1), 100);
        assert_eq!(wasted.read_to(50).await, Ok(false));
        wasted.waste_to(100).await;
        assert_eq!(wasted.bytes.len(), 60, "what is wasted is not kept");
        assert_eq!(wasted.read_to(10_000).await, Ok(true));
        assert_eq!(wasted.into_bytes().len(), 900, "no more is wasted than is said");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_crawls_ends_and_a_large_one_has_its_time() {
        let began = Instant::now();
        assert_eq!(body(1, Duration::from_secs(3), 1_000).read_to(100_000).await, Err(BodyError::Slow));
        assert!(began.elapsed() < PAUSE_MAX + Duration::from_secs(1));
        let second = usize::try_from(BYTES_PER_SECOND_MIN).expect("fits");
        assert_eq!(body(second, Duration::from_secs(1), 60).read_to(second * 60).await, Ok(true));
    }
}
