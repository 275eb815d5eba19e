//! Every order of events that a legal driver can produce, explored as a graph of states.
//!
//! Paths that lead to the same state continue alike, so the graph covers every path of any length, while a
//! tree of paths would not end.

use std::collections::{HashMap, HashSet};
use std::mem::Discriminant;

use super::world::{Move, Order, World};
use super::*;

/// The findings of an exploration.
#[derive(Default)]
struct Explored {
    states: usize,
    /// The length of the longest of all shortest paths.
    depth: usize,
    commands: HashSet<Discriminant<Order>>,
    resolutions: HashSet<Resolution<&'static str>>,
    endings: HashSet<Ending<&'static str>>,
}

impl Explored {
    fn record(&mut self, commands: Vec<Order>) {
        for command in commands {
            self.commands.insert(std::mem::discriminant(&command));
            match command {
                Command::Resolve(resolution) => drop(self.resolutions.insert(resolution)),
                Command::Finalize(ending) => drop(self.endings.insert(ending)),
                _ => {}
            }
        }
    }
}

/// Visits every state that can be reached, shortest paths first, and fails with the path to the first
/// objection.
fn explore(start: World) -> Explored {
    let mut explored = Explored::default();
    let mut origins: HashMap<World, Option<(World, Move)>> = HashMap::from([(start.clone(), None)]);
    let mut frontier = vec![start];
    while !frontier.is_empty() {
        let mut next = Vec::new();
        for world in frontier {
            if world.is_released() {
                world
                    .check_rest()
                    .unwrap_or_else(|objection| object(&objection, &world, None, &origins));
            }
            for step in world.moves() {
                let mut reached = world.clone();
                let commands = reached
                    .make(step.clone())
                    .unwrap_or_else(|objection| object(&objection, &world, Some(&step), &origins));
                explored.record(commands);
                if !origins.contains_key(&reached) {
                    origins.insert(reached.clone(), Some((world.clone(), step)));
                    next.push(reached);
                }
            }
        }
        explored.depth += usize::from(!next.is_empty());
        frontier = next;
    }
    explored.states = origins.len();
    explored
}

fn object(
    objection: &str,
    world: &World,
    last: Option<&Move>,
    origins: &HashMap<World, Option<(World, Move)>>,
) -> ! {
    let mut path: Vec<_> = last.cloned().into_iter().collect();
    let mut world = world;
    while let Some(Some((origin, step))) = origins.get(world) {
        path.push(step.clone());
        world = origin;
    }
    path.reverse();
    panic!("{objection}, after {path:#?}");
}

#[test]
fn every_order_of_events_with_a_store_that_pushes_ends_well() {
    let explored = explore(World::attached(StoreSupport::WithSubscription));

    assert!(
        explored.depth >= 8 && explored.states > 1000,
        "too little explored"
    );
    assert_eq!(
        explored.commands.len(),
        25,
        "every command but those for ends and kept failures is used"
    );
    assert_eq!(
        explored.resolutions,
        HashSet::from([
            Resolution::Completed,
            Resolution::Detached,
            Resolution::Failed(Cause::Function("function")),
            Resolution::Failed(Cause::Transform("transform")),
            Resolution::Failed(Cause::PendingSnapshot("store")),
            Resolution::Failed(Cause::PendingSnapshot("busy")),
            Resolution::Rejected(Cause::Function("function")),
            Resolution::Rejected(Cause::Transform("transform")),
            Resolution::Rejected(Cause::PendingSnapshot("store")),
            Resolution::Rejected(Cause::PendingSnapshot("busy")),
            Resolution::Rejected(Cause::LockRefused("busy")),
            Resolution::Rejected(Cause::ClientGone("gone")),
        ])
    );
    assert_eq!(
        explored.endings,
        HashSet::from([
            Ending::Completed,
            Ending::Failed("function"),
            Ending::Aborted(None),
            Ending::Aborted(Some("function")),
        ])
    );
}

#[test]
fn every_order_of_events_with_snapshots_of_ends_ends_well() {
    let explored = explore(World::keeping_ends(StoreSupport::WithSubscription));

    assert_eq!(
        explored.commands.len(),
        26,
        "every command but the one for kept failures is used"
    );
    for expected in [
        Resolution::Completed,
        Resolution::Detached,
        Resolution::Failed(Cause::Function("store")),
        Resolution::Rejected(Cause::Function("store")),
        Resolution::Rejected(Cause::ClientGone("gone")),
    ] {
        assert!(explored.resolutions.contains(&expected), "{expected:?}");
    }
}

#[test]
fn every_order_of_events_with_kept_failures_ends_well() {
    let explored = explore(World::keeping_failures(StoreSupport::WithSubscription));

    assert_eq!(
        explored.commands.len(),
        26,
        "every command but the one for ends is used"
    );
    for expected in [
        Resolution::Completed,
        Resolution::Detached,
        Resolution::Failed(Cause::Function("function")),
        Resolution::Rejected(Cause::ClientGone("gone")),
    ] {
        assert!(explored.resolutions.contains(&expected), "{expected:?}");
    }
}

#[test]
fn every_order_of_events_without_a_store_ends_well() {
    let explored = explore(World::attached(StoreSupport::None));

    assert!(
        explored.depth >= 8 && explored.states > 1000,
        "too little explored"
    );
    assert!(
        explored
            .resolutions
            .contains(&Resolution::Failed(Cause::DetachWithoutStore))
    );
    assert!(
        explored
            .resolutions
            .contains(&Resolution::Rejected(Cause::DetachWithoutStore))
    );
    assert!(!explored.resolutions.contains(&Resolution::Detached));
}

#[test]
fn every_order_of_events_with_a_store_that_does_not_push_ends_well() {
    let explored = explore(World::attached(StoreSupport::WithoutSubscription));

    assert!(
        explored
            .resolutions
            .contains(&Resolution::Failed(Cause::DetachWithoutSubscription))
    );
    assert!(!explored.resolutions.contains(&Resolution::Detached));
}

#[test]
fn every_order_of_events_after_a_takeover_ends_well() {
    let explored = explore(World::taken_over());

    assert!(explored.depth >= 8, "too little explored");
    assert!(explored.resolutions.is_empty(), "a takeover answers nobody");
    assert_eq!(explored.endings.len(), 4);
}
