//! Every named point at which a test ends a service as a power cut would, and what makes the service pass it.
//!
//! - The code has these points and no others: a contract test compares. The end-to-end tier kills a service at each of them.

/// A process of the control plane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// The renderer.
    Renderer,
    /// The audit service.
    Audit,
    /// A gateway with the agents' door.
    Agents,
    /// A gateway with the operators' door.
    Operators,
}

/// What makes a service pass a point, after a change that it has not seen yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// Its start, and what it finds to do then.
    Start,
    /// The same, and hosts are not told of what it did: the next change wakes them.
    StartUntold,
    /// The first session of a host, which has to get the change.
    Connect,
    /// Another change.
    Change,
    /// Another change that is waited for by the clock, since its hint is lost.
    ChangeByClock,
    /// A host that enrols.
    Enrolment,
    /// A token that is made.
    Token,
    /// A token that is made and taken back.
    TokenRevoked,
    /// The request to end.
    End,
}

/// One point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailPoint {
    /// Who is killed at it.
    pub service: Service,
    /// What is under way.
    pub subject: &'static str,
    /// How far it is.
    pub moment: &'static str,
    /// What leads there.
    pub cause: Cause,
}

const fn at(service: Service, cause: Cause, subject: &'static str, moment: &'static str) -> FailPoint {
    FailPoint { service, subject, moment, cause }
}

const BEFORE: &str = "before the commit";
const AFTER: &str = "after the commit";

/// All of them, by service; a point that several services pass stands at each.
pub const FAIL_POINTS: &[FailPoint] = &[
    at(Service::Renderer, Cause::Start, "acquire a lease", BEFORE),
    at(Service::Renderer, Cause::Start, "acquire a lease", AFTER),
    at(Service::Renderer, Cause::Start, "a render", "planned, before it is stored"),
    at(Service::Renderer, Cause::Start, "commit a render", BEFORE),
    at(Service::Renderer, Cause::StartUntold, "commit a render", AFTER),
    at(Service::Renderer, Cause::Start, "a render", "stored, before it is announced"),
    at(Service::Renderer, Cause::StartUntold, "hint", "before it is published"),
    at(Service::Renderer, Cause::Start, "hint", "after it was published"),
    at(Service::Renderer, Cause::Start, "number events", BEFORE),
    at(Service::Renderer, Cause::Start, "number events", AFTER),
    at(Service::Renderer, Cause::Start, "events", "before the stream is compared"),
    at(Service::Renderer, Cause::Start, "events", "after the stream was compared"),
    at(Service::Renderer, Cause::Start, "events", "after they were read"),
    at(Service::Renderer, Cause::Start, "events", "while they are published"),
    at(Service::Renderer, Cause::Start, "events", "after they were published"),
    at(Service::Renderer, Cause::End, "release a lease", BEFORE),
    at(Service::Renderer, Cause::End, "release a lease", AFTER),
    at(Service::Renderer, Cause::Enrolment, "decide a request", BEFORE),
    at(Service::Renderer, Cause::Enrolment, "decide a request", AFTER),
    at(Service::Renderer, Cause::Enrolment, "a request", "decided, before it is announced"),
    at(Service::Audit, Cause::Start, "the log", "before entries are written"),
    at(Service::Audit, Cause::Start, "the log", "entries written, before they are synced"),
    at(Service::Audit, Cause::Start, "the log", "entries synced, before anybody is told"),
    at(Service::Audit, Cause::End, "a checkpoint", "before it is written"),
    at(Service::Audit, Cause::End, "a checkpoint", "place saved, before it is written"),
    at(Service::Audit, Cause::End, "a checkpoint", "after it was written"),
    at(Service::Operators, Cause::Change, "apply intent", BEFORE),
    at(Service::Operators, Cause::Change, "apply intent", AFTER),
    at(Service::Operators, Cause::ChangeByClock, "a change", "stored, before hints and answer"),
    at(Service::Operators, Cause::Change, "hint", "before it is published"),
    at(Service::Operators, Cause::Change, "hint", "after it was published"),
    at(Service::Operators, Cause::Change, "finish an operation", BEFORE),
    at(Service::Operators, Cause::Change, "finish an operation", AFTER),
    at(Service::Operators, Cause::Token, "create an enrolment token", BEFORE),
    at(Service::Operators, Cause::Token, "create an enrolment token", AFTER),
    at(Service::Operators, Cause::TokenRevoked, "revoke an enrolment token", BEFORE),
    at(Service::Operators, Cause::TokenRevoked, "revoke an enrolment token", AFTER),
    at(Service::Agents, Cause::Start, "acquire a lease", BEFORE),
    at(Service::Agents, Cause::Start, "acquire a lease", AFTER),
    at(Service::Agents, Cause::Connect, "open sessions", BEFORE),
    at(Service::Agents, Cause::Connect, "open sessions", AFTER),
    at(Service::Agents, Cause::Connect, "a snapshot", "before it is written"),
    at(Service::Agents, Cause::Connect, "a snapshot", "half written"),
    at(Service::Agents, Cause::Connect, "a snapshot", "written, before its outcome"),
    at(Service::Agents, Cause::Connect, "an outcome", "before it is recorded"),
    at(Service::Agents, Cause::Connect, "record facts", BEFORE),
    at(Service::Agents, Cause::Connect, "record facts", AFTER),
    at(Service::Agents, Cause::Connect, "hint", "before it is published"),
    at(Service::Agents, Cause::Connect, "hint", "after it was published"),
    at(Service::Agents, Cause::Change, "a delta", "before it is written"),
    at(Service::Agents, Cause::Change, "a delta", "half written"),
    at(Service::Agents, Cause::Change, "a delta", "written, before its outcome"),
    at(Service::Agents, Cause::Enrolment, "request an enrolment", BEFORE),
    at(Service::Agents, Cause::Enrolment, "request an enrolment", AFTER),
    at(Service::Agents, Cause::Enrolment, "an enrolment", "granted, before the host is told"),
];

/// Transactions that write and at which no service is killed here, each with the reason.
pub const COMMITS_LEFT_OUT: &[(&str, &str)] = &[
    ("migrate", "no service: a program of its own, whose steps are shown to be taken once by the tests of the store"),
    (
        "raise the authority's epoch",
        "one statement and its event; asked again it raises once more, which takes nobody back, or not if the request names itself",
    ),
    ("confirm a step back", "one transaction; asked again it meets another number and changes nothing"),
    ("decommission a host", "one transaction, as a change of intent; asked again it finds the host out already"),
    ("cancel an operation", "as the end of an operation"),
    ("record a directive", "one event that says who asked; what is asked again is told again"),
    ("step a rollout", "written on the row as it was seen: whoever looks next finds the step taken, or takes it"),
    ("pause or resume a rollout", "one row; asked again it is as it was asked for, and says so"),
    ("abort a rollout", "one transaction, as a change of intent; asked again it finds the rollout ended"),
    ("record what became of an operation", "what is not recorded is seen again by the next look"),
    ("sign states again", "whoever leads next finds what is not signed, and signs it"),
    ("renew a lease", "one statement that writes one time; a lost answer is a lapse, which the renderer's tests show"),
    ("beat", "one statement that writes one time; a lost answer is followed by the next beat in seconds"),
    ("report the bus", "one statement that writes over what it wrote before; whoever leads next says it anew"),
    ("request a certificate", "as the enrolment of a host, without the token"),
    ("create an API token", "as the token of an enrolment"),
    ("revoke an API token", "as the token of an enrolment"),
    ("close sessions", "by `record facts` in a gateway: this one is for tests of the store"),
    ("record outcomes", "by `record facts` in a gateway: this one is for tests of the store"),
    ("record faults", "by `record facts` in a gateway: this one is for tests of the store"),
    ("record snapshots sent", "by `record facts` in a gateway: this one is for tests of the store"),
    ("record presence", "by `record facts` in a gateway: this one is for tests of the store"),
    ("report addresses", "by `record facts` in a gateway: this one is for tests of the store"),
];
