//! What waits between those who log and the one thread that writes it.
//!
//! - Nobody who logs waits for whoever reads: a reader that is there and reads nothing costs lines, and no time.
//! - Bounded in bytes, in order; what finds no room and what cannot be written is lost and counted.
//! - What follows a line that was taken in part begins a line of its own.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The most bytes that wait: about 20,000 lines of 200 bytes.
pub(super) const BYTES_MAX: usize = 4 * 1024 * 1024;

/// Takes lines until it is dropped; the thread writes what waits then, and ends.
#[derive(Debug)]
pub(super) struct Queue {
    lines: Arc<Lines>,
}

impl Queue {
    /// Starts the thread that writes.
    pub(super) fn start(to: impl Write + Send + 'static) -> io::Result<Self> {
        let lines = Arc::new(Lines::default());
        let taken = Arc::clone(&lines);
        thread::Builder::new().name("log".to_owned()).spawn(move || write(&taken, to))?;
        Ok(Self { lines })
    }

    /// What waits, to be asked about it from elsewhere.
    pub(super) fn lines(&self) -> &Arc<Lines> {
        &self.lines
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.lines.waiting().is_over = true;
        self.lines.more.notify_one();
    }
}

/// The lines that wait.
#[derive(Debug, Default)]
pub(super) struct Lines {
    waiting: Mutex<Waiting>,
    more: Condvar,
    none: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: VecDeque<Vec<u8>>,
    /// Of them and of the one that is being written.
    bytes: usize,
    is_over: bool,
}

/// There is no room for a line.
#[derive(Debug)]
pub(super) struct Full;

impl Lines {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Nothing that can panic runs under this lock.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a line, with its end.
    pub(super) fn put(&self, line: Vec<u8>) -> Result<(), Full> {
        let mut waiting = self.waiting();
        if line.len() > BYTES_MAX - waiting.bytes {
            drop(waiting);
            count_lost();
            return Err(Full);
        }
        waiting.bytes += line.len();
        waiting.lines.push_back(line);
        drop(waiting);
        self.more.notify_one();
        Ok(())
    }

    /// Waits until everything that was taken is written or lost, so long at most; whether it is.
    pub(super) fn flush(&self, within: Duration) -> bool {
        let waits = |waiting: &mut Waiting| waiting.bytes > 0;
        let waited = self.none.wait_timeout_while(self.waiting(), within, waits);
        let (waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        waiting.bytes == 0
    }

    /// The next line to be written; nothing once no more will come.
    fn next(&self) -> Option<Vec<u8>> {
        let waits = |waiting: &mut Waiting| waiting.lines.is_empty() && !waiting.is_over;
        let waited = self.more.wait_while(self.waiting(), waits);
        waited.unwrap_or_else(PoisonError::into_inner).lines.pop_front()
    }

    fn is_done_with(&self, line: &[u8]) {
        let mut waiting = self.waiting();
        waiting.bytes -= line.len();
        if waiting.bytes == 0 {
            self.none.notify_all();
        }
    }
}

fn count_lost() {
    metrics::counter!("holdfast_log_lines_lost_total").increment(1);
}

fn write(lines: &Lines, mut to: impl Write) {
    let mut is_cut = false;
    while let Some(line) = lines.next() {
        if write_line(&mut to, &line, &mut is_cut).is_err() {
            count_lost();
        }
        lines.is_done_with(&line);
    }
}

/// Writes it behind the end of one that was cut.
fn write_line(to: &mut impl Write, line: &[u8], is_cut: &mut bool) -> io::Result<()> {
    if *is_cut {
        to.write_all(b"\n")?;
        *is_cut = false;
    }
    let mut left = line;
    while !left.is_empty() {
        match to.write(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => left = left.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        *is_cut = !left.is_empty();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn who_logs_waits_for_no_reader_and_what_fits_is_written_in_order_once_there_is_one() {
        let (reads, to) = mk_reader();
        let queue = Queue::start(to).unwrap();
        let line = |n: u8| vec![b'0' + n; BYTES_MAX / 8];
        let taken = (0..9).map(|n| queue.lines().put(line(n)).is_ok()).filter(|taken| *taken).count();
        assert_eq!(taken, 8, "the one that is being written counts as well");
        assert!(!queue.lines().flush(Duration::from_millis(10)), "nobody reads");
        let reading = thread::spawn(move || (0..9).map(|_| reads.recv_timeout(LIMIT).unwrap()).collect::<Vec<_>>());
        assert!(queue.lines().flush(LIMIT));
        queue.lines().put(b"after\n".to_vec()).unwrap();
        let read = reading.join().unwrap();
        let wanted: Vec<_> = (0..8).map(line).chain([b"after\n".to_vec()]).collect();
        assert!(read == wanted, "in order, and with room again the next is taken");
    }

    #[test]
    fn a_line_larger_than_the_queue_is_lost_and_the_thread_writes_what_waits_before_it_ends() {
        let (reads, to) = mk_reader();
        let queue = Queue::start(to).unwrap();
        queue.lines().put(vec![b'x'; BYTES_MAX + 1]).unwrap_err();
        queue.lines().put(b"one\n".to_vec()).unwrap();
        queue.lines().put(b"two\n".to_vec()).unwrap();
        drop(queue);
        let read: Vec<_> = reads.iter().collect();
        assert_eq!(read, [b"one\n".to_vec(), b"two\n".to_vec()]);
    }

    /// A reader that takes a line when it is asked for one.
    struct Reader(SyncSender<Vec<u8>>);

    fn mk_reader() -> (Receiver<Vec<u8>>, Reader) {
        let (to, reads) = sync_channel(0);
        (reads, Reader(to))
    }

    impl Write for Reader {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}
