//! One line per check, such as `check user=ann endpoint=/x cost=2`, and one line per answer, in order. Up to 16 lines of a connection
//! are decided at a time, in any order; further ones wait in the socket.

use std::io;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, ready};
use futures_util::stream::{FuturesOrdered, StreamExt};
use futures_util::{FutureExt, TryFutureExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use trypema_server::testkit::{Checks, MAX_DECISIONS, Protocol, Serving, Stream, Work};

use super::Decide;

const MAX_LINE: usize = 4_096;

pub struct Lines(pub Decide);

impl Protocol for Lines {
    fn serve(self: Arc<Self>, stream: Stream) -> Serving {
        Box::pin(async move {
            let (slot, finish) = (Arc::clone(stream.slot()), Notify::new());
            let serving = pin!(serve(&self.0, stream, &finish));
            slot.drive(serving, |_| finish.notify_one()).await;
        })
    }
}

async fn serve(decide: &Decide, mut stream: Stream, finish: &Notify) -> io::Result<()> {
    let (mut read, mut running, mut is_ending) = (Vec::new(), FuturesOrdered::new(), false);
    loop {
        while running.len() < usize::from(MAX_DECISIONS)
            && let Some(end) = read.iter().position(|byte| *byte == b'\n')
        {
            let line = String::from_utf8_lossy(&read.drain(..=end).collect::<Vec<_>>()).trim().to_owned();
            running.push_back(match stream.slot().begin_request() {
                Ok(work) => Either::Left(
                    tokio::spawn(answer(work, Arc::clone(decide), line)).map_err(io::Error::other),
                ),
                Err(_) => Either::Right(ready(Ok((None, "busy".to_owned())))),
            });
        }
        let may_read = !is_ending && running.len() < usize::from(MAX_DECISIONS);
        let mut piece = [0; MAX_LINE];
        tokio::select! {
            biased;
            Some(first) = running.next() => {
                let others = std::iter::from_fn(|| running.next().now_or_never().flatten());
                let mut answers = String::new();
                for answered in std::iter::once(first).chain(others) {
                    let (work, answer) = answered?;
                    work.into_iter().for_each(Work::finish_when_written);
                    answers += &format!("{answer}\n");
                }
                stream.write_all(answers.as_bytes()).await?;
                stream.flush().await?;
            }
            count = stream.read(&mut piece), if may_read => match count? {
                0 => is_ending = true,
                count => read.extend_from_slice(&piece[..count]),
            },
            () = finish.notified() => is_ending = true,
        }
        let is_complete = read.contains(&b'\n');
        if read.len() > MAX_LINE && !is_complete || is_ending && running.is_empty() && !is_complete {
            return Ok(());
        }
        if !read.is_empty() && !is_complete {
            stream.slot().begin_head();
        }
    }
}

async fn answer(work: Work, decide: Decide, line: String) -> (Option<Work>, String) {
    if work.begin_decision().is_err() {
        return (Some(work), "busy".to_owned());
    }
    let answer = decide(line, &work).await;
    work.end_decision();
    (Some(work), answer)
}

/// Decides lines by the rules of a server.
pub fn decide_by(checks: Checks) -> Decide {
    Arc::new(move |line, work| {
        let checks = checks.clone();
        Box::pin(async move { checks.answer(&line, work).await })
    })
}
