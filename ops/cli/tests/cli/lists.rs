//! Lists: their order, and that pages together are the whole.

use holdfast_identity::TrustRoots;
use holdfast_identity::https::{Client, Request};
use holdfast_identity::tls::client::https;
use holdfast_model::condition::{ConditionType, Holds};
use holdfast_model::report::HostReport;
use holdfast_model::statement::OutcomeKind;
use hyper::Method;
use serde_json::Value;

use crate::intent::POLICIES;
use crate::plane::Plane;

/// Which host is in what state, in the order in which the list must have them; their names say nothing of it.
const WANTED: [(&str, &str); 7] = [
    ("z-1", "DEGRADED"),
    ("g-1", "OFFLINE"),
    ("f-1", "OFFLINE"),
    ("e-1", "OFFLINE"),
    ("w-1", "PENDING"),
    ("a-1", "SYNCED"),
    ("b-1", "SYNCED"),
];

/// Hosts in every state.
async fn mk_fleet() -> Plane {
    let mut plane = Plane::start().await;
    for (n, name) in ["a-1", "b-1", "e-1", "f-1", "g-1", "w-1", "z-1"].iter().enumerate() {
        plane.enrol(name, &format!("10.0.0.{}", n + 1)).await;
    }
    plane.render().await;
    plane.all_say(OutcomeKind::Applied).await;
    // Two have another state to take: one fails, one has said nothing yet.
    for app in ["z", "w"] {
        let policy = POLICIES.split("---\n").next().expect("a part");
        plane.file(
            "one.yaml",
            &policy.replace("app: db", &format!("app: {app}")).replace("name: db", &format!("name: {app}")),
        );
        plane.run(&["apply", "-f", "one.yaml"]).await.ended(0);
    }
    plane.render().await;
    plane.says("z-1", OutcomeKind::Failed).await;
    // Three went away, one after the other.
    for (name, minutes) in [("e-1", 30), ("f-1", 20), ("g-1", 10)] {
        let host = format!("host_id = (SELECT host_id FROM hosts WHERE name = '{name}')");
        plane.postgres.sql(&format!("UPDATE sessions SET closed_at = now(), close_reason = 'lost' WHERE {host}"));
        plane.postgres.sql(&format!("UPDATE presence SET heard_at = now() - interval '{minutes} min' WHERE {host}"));
    }
    plane
}

#[tokio::test]
async fn b25_hosts_in_trouble_come_first_then_who_is_away_the_last_heard_first_then_who_is_on_the_way() {
    let mut plane = mk_fleet().await;
    let listed = plane.run(&["get", "hosts", "-o", "json"]).await.json();
    let listed: Vec<(&str, &str)> =
        items(&listed).iter().map(|host| (text(host, "name"), text(host, "sync"))).collect();
    assert_eq!(listed, WANTED);
    let table = plane.run(&["get", "hosts"]).await.ended(0);
    let names: Vec<&str> = table.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, WANTED.map(|(name, _)| format!("default/{name}")));
    // It has everything, and something of it is not as it should be.
    plane.speaks("b-1", 3);
    plane.says("b-1", OutcomeKind::Applied).await;
    let uncovered = |report: &mut HostReport| {
        let conditions = report.components.iter_mut().flat_map(|component| &mut component.conditions);
        let forwarding = conditions.filter(|one| one.condition.kind == ConditionType::ForwardingCovered);
        forwarding.for_each(|one| one.condition.status = Holds::False);
    };
    plane.reports("b-1", uncovered).await;
    let table = plane.run(&["get", "hosts"]).await.ended(0);
    let last: Vec<&str> = table.lines().rev().take(2).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(last, ["default/a-1", "default/b-1"], "{table}");
}

#[tokio::test]
async fn b24_the_pages_of_a_list_are_together_the_whole_of_it_and_a_cursor_is_of_its_list_alone() {
    let plane = mk_fleet().await;
    plane.file("policies.yaml", POLICIES);
    plane.run(&["apply", "-f", "policies.yaml"]).await.ended(0);
    let (mut cursors, mut lists) = (Vec::new(), Vec::new());
    for (path, count) in [("/v1/hosts", 7), ("/v1/objects", 5), ("/v1/operations", 3)] {
        let (_, whole) = ask(&plane, path).await;
        assert_eq!((items(&whole).len(), &whole["next_cursor"]), (count, &Value::Null), "{path}");
        for limit in 1..=count + 1 {
            let (mut paged, mut cursor) = (Vec::new(), None::<String>);
            loop {
                let from = cursor.as_ref().map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
                let (status, page) = ask(&plane, &format!("{path}?limit={limit}{from}")).await;
                assert_eq!(status, 200, "{page}");
                assert!((1..=limit).contains(&items(&page).len()), "{path} by {limit}: {page}");
                paged.extend(items(&page).iter().map(identity));
                cursor = page["next_cursor"].as_str().map(str::to_owned);
                cursors.extend(cursor.clone().filter(|_| limit == 1 && paged.len() == 1));
                if cursor.is_none() {
                    break;
                }
                assert!(paged.len() < count, "{path} by {limit} has no end");
            }
            assert_eq!(paged, items(&whole).iter().map(identity).collect::<Vec<_>>(), "{path} by {limit}");
        }
        lists.push(path);
    }
    // A page that goes on in another list, or with other filters, is refused.
    for (at, cursor) in cursors.iter().enumerate() {
        for (of, path) in lists.iter().enumerate().filter(|(of, _)| *of != at) {
            let (status, problem) = ask(&plane, &format!("{path}?cursor={cursor}")).await;
            assert_eq!((status, text(&problem, "type")), (400, "urn:holdfast:problem:invalid-cursor"), "{at} in {of}");
        }
    }
    let (status, _) = ask(&plane, &format!("/v1/hosts?namespace=default&cursor={}", cursors[0])).await;
    assert_eq!(status, 400);
}

fn items(page: &Value) -> &[Value] {
    page["items"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("{field}: {value}"))
}

/// What names an item, whatever it is.
fn identity(item: &Value) -> String {
    ["id", "kind", "namespace", "name"].iter().filter_map(|field| item[*field].as_str()).collect::<Vec<_>>().join("/")
}

/// Asks the API as a program does.
async fn ask(plane: &Plane, path: &str) -> (u16, Value) {
    let roots = TrustRoots::load(&plane.folder().join("ca.pem")).expect("it was written");
    let client = Client::new(https(&roots).expect("a configuration"));
    let request = Request::new(Method::GET, format!("{}{path}", plane.api()));
    let request = request.header(hyper::header::AUTHORIZATION, &format!("Bearer {}", plane.admin())).expect("a header");
    let response = client.request(request).await.expect("the door answers");
    (response.status.as_u16(), serde_json::from_slice(&response.body).expect("JSON"))
}

/// Its policy is laid out for the list: a host that waits for it waits for what never comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_whose_policy_is_larger_than_what_travels_is_in_the_list_as_not_initialized_since_it_is_oversized() {
    // No two addresses touch, and each rule has all of them, one that is its own, and a port of its own: five bytes for each address.
    const ADDRESSES: u32 = 249_000;
    const RULES: u32 = 30;
    let mut plane = Plane::start().await;
    for (name, address) in [("big-1", "10.0.0.1"), ("small-1", "10.0.0.2")] {
        plane.enrol(name, address).await;
    }
    plane.render().await;
    for name in ["big-1", "small-1"] {
        plane.opens(name).await;
    }
    let address = |n: u32| format!("{}/32", std::net::Ipv4Addr::from(0x3000_0000 + 2 * n));
    let group: String = (0..ADDRESSES).map(|n| format!("    {}\n", address(n))).collect();
    let rule = |n| {
        let own = address(ADDRESSES + n);
        format!("  - from: [{{addressGroup: many}}, {{cidr: {own}}}]\n    services: [{{tcp: {}}}]\n", 1_000 + 2 * n)
    };
    let rules: String = (0..RULES).map(rule).collect();
    plane.file(
        "big.yaml",
        &format!(
            "apiVersion: holdfast.dev/v1\nkind: AddressGroup\nmetadata: {{name: many}}\nspec:\n  cidrs: |\n{group}---\n\
             apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {{name: big}}\nspec:\n  hostSelector: {{matchLabels: {{app: \
             big}}}}\n  ingress:\n{rules}"
        ),
    );
    let outcomes = async |plane: &Plane| {
        let listed = plane.run(&["get", "hosts", "-o", "json"]).await.json();
        let of = |name: &str| {
            let host = items(&listed).iter().find(|host| text(host, "name") == name).expect("it is listed");
            (host["initialized"]["outcome"].clone(), host["initialized"]["component"].clone())
        };
        [of("big-1"), of("small-1")]
    };
    let is = |outcome: &str| (Value::from(outcome), Value::from("policy"));
    assert_eq!(outcomes(&plane).await, [is("pending"), is("pending")]);
    plane.run(&["apply", "-f", "big.yaml"]).await.ended(0);
    assert_eq!(outcomes(&plane).await, [is("oversized"), is("pending")]);
    let told = plane.run(&["describe", "host", "big-1"]).await.ended(0);
    assert!(told.contains("Initialized:  oversized") && told.contains("TOO LARGE"), "{told}");
}
