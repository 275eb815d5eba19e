//! Plugins: initialised when first needed, asked once for what they have, never for what is not theirs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn_core::{
    Action, ActionType, Descriptor, DynAction, Error, HandlerResult, Plugin, Registry, Status,
};
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use tokio::sync::Semaphore;

use crate::support::{Counter, assert_failed, idle};

/// A plugin that has `kitchen/soup` from the start and makes every dish that does not begin with `no-`.
#[derive(Default)]
struct Kitchen {
    inits: Counter,
    resolves: Counter,
    lists: Counter,
    /// How many initialisations fail before one succeeds.
    failures: AtomicUsize,
    /// The semaphore that each answer waits for, if any.
    gate: Option<Arc<Semaphore>>,
}

fn dish(name: &str) -> Arc<dyn DynAction> {
    Arc::new(Action::new(
        ActionType::MODEL,
        format!("kitchen/{name}"),
        |(): (), _| async { Ok(()) },
    ))
}

impl Kitchen {
    async fn wait(&self) {
        if let Some(gate) = &self.gate {
            gate.acquire().await.expect("it is never closed").forget();
        }
    }
}

impl Plugin for Kitchen {
    fn name(&self) -> &'static str {
        "kitchen"
    }

    fn init(&self) -> BoxFuture<'_, HandlerResult<Vec<Arc<dyn DynAction>>>> {
        Box::pin(async {
            self.inits.add();
            tokio::task::yield_now().await;
            let fails = self
                .failures
                .try_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            if fails.is_ok() {
                return Err(Error::unavailable("the stove is cold").into());
            }
            Ok(vec![dish("soup")])
        })
    }

    fn resolve<'a>(
        &'a self,
        action_type: &'a ActionType,
        id: &'a str,
    ) -> BoxFuture<'a, HandlerResult<Option<Arc<dyn DynAction>>>> {
        Box::pin(async move {
            self.resolves.add();
            self.wait().await;
            if id == "poison" {
                return Err(Error::permission_denied("not on my stove").into());
            }
            Ok((*action_type == ActionType::MODEL && !id.starts_with("no-")).then(|| dish(id)))
        })
    }

    fn list(&self) -> BoxFuture<'_, HandlerResult<Vec<Descriptor>>> {
        self.lists.add();
        let stew = Descriptor::new(ActionType::MODEL, "kitchen/stew");
        Box::pin(std::future::ready(Ok(vec![stew])))
    }
}

fn with(kitchen: Kitchen) -> (Registry, Arc<Kitchen>) {
    let (registry, kitchen) = (Registry::new(), Arc::new(kitchen));
    registry.install(kitchen.clone()).expect("the name is free");
    (registry, kitchen)
}

#[tokio::test]
async fn nothing_happens_until_a_name_of_the_plugin_is_looked_up() {
    let (registry, kitchen) = with(Kitchen::default());

    for key in [
        "/model/soup",
        "/model/pantry/soup",
        "/flow/kitchen",
        "kitchen/soup",
        "/model/kitchen/",
        "",
    ] {
        assert!(registry.lookup(key).await.unwrap().is_none());
    }
    assert!(registry.get("/model/kitchen/soup").is_none());

    assert_eq!((kitchen.inits.get(), kitchen.resolves.get()), (0, 0));
}

#[tokio::test]
async fn a_name_is_found_among_the_actions_from_the_start_without_asking() {
    let (registry, kitchen) = with(Kitchen::default());

    assert!(registry.lookup("/model/kitchen/soup").await.unwrap().is_some());

    assert_eq!((kitchen.inits.get(), kitchen.resolves.get()), (1, 0));
    assert!(registry.get("/model/kitchen/soup").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_look_ups_at_once_initialise_once() {
    let (registry, kitchen) = with(Kitchen::default());
    let look_ups = (0..50).map(|_| {
        let registry = registry.clone();
        tokio::spawn(async move { registry.lookup("/model/kitchen/soup").await.unwrap().is_some() })
    });

    let found = join_all(look_ups).await;

    assert!(found.into_iter().all(|found| found.unwrap()));
    assert_eq!(kitchen.inits.get(), 1);
}

#[tokio::test]
async fn an_initialisation_that_failed_is_tried_again() {
    let (registry, kitchen) = with(Kitchen {
        failures: 2.into(),
        ..Kitchen::default()
    });

    for _ in 0..2 {
        assert_failed(
            registry.lookup("/model/kitchen/soup").await,
            Status::Unavailable,
            None,
        );
    }

    assert!(registry.lookup("/model/kitchen/soup").await.unwrap().is_some());
    assert_eq!(kitchen.inits.get(), 3);
}

#[tokio::test]
async fn an_initialisation_that_was_given_up_is_tried_again() {
    let (registry, kitchen) = with(Kitchen::default());

    assert!(registry.lookup("/model/kitchen/soup").now_or_never().is_none());

    assert!(registry.lookup("/model/kitchen/soup").await.unwrap().is_some());
    assert_eq!(kitchen.inits.get(), 2);
}

#[tokio::test]
async fn a_clash_during_initialisation_registers_nothing_and_names_the_key() {
    struct Twice;

    impl Plugin for Twice {
        fn name(&self) -> &'static str {
            "kitchen"
        }

        fn init(&self) -> BoxFuture<'_, HandlerResult<Vec<Arc<dyn DynAction>>>> {
            Box::pin(std::future::ready(Ok(vec![dish("soup"), dish("stew")])))
        }
    }

    let registry = Registry::new();
    registry.register(dish("stew")).unwrap();
    registry.install(Arc::new(Twice)).unwrap();

    for _ in 0..2 {
        let error = assert_failed(
            registry.lookup("/model/kitchen/soup").await,
            Status::AlreadyExists,
            None,
        );
        assert!(error.message().contains("'/model/kitchen/stew'"), "{error}");
    }

    assert!(registry.get("/model/kitchen/soup").is_none());
}

#[tokio::test]
async fn resolved_actions_are_remembered() {
    let (registry, kitchen) = with(Kitchen::default());

    let first = registry
        .lookup("/model/kitchen/stew/with/leeks")
        .await
        .unwrap()
        .unwrap();
    let second = registry
        .lookup("/model/kitchen/stew/with/leeks")
        .await
        .unwrap()
        .unwrap();

    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!(first.descriptor().name, "kitchen/stew/with/leeks");
    assert_eq!(kitchen.resolves.get(), 1);
}

#[tokio::test]
async fn concurrent_callers_ask_once_and_share_the_answer() {
    let gate = Arc::new(Semaphore::new(0));
    let (registry, kitchen) = with(Kitchen {
        gate: Some(Arc::clone(&gate)),
        ..Kitchen::default()
    });
    let look_ups: Vec<_> = (0..50)
        .map(|_| {
            let registry = registry.clone();
            tokio::spawn(async move { registry.resolve("/model/kitchen/stew").await.unwrap() })
        })
        .collect();
    idle().await;

    gate.add_permits(50);
    let found = join_all(look_ups).await;

    let first = found[0].as_ref().unwrap();
    assert!(
        found
            .iter()
            .all(|action| Arc::ptr_eq(action.as_ref().unwrap(), first))
    );
    assert_eq!(kitchen.resolves.get(), 1);
}

#[tokio::test]
async fn a_caller_that_gives_up_hands_its_turn_to_the_next() {
    let gate = Arc::new(Semaphore::new(0));
    let (registry, kitchen) = with(Kitchen {
        gate: Some(Arc::clone(&gate)),
        ..Kitchen::default()
    });
    let ask = || {
        let registry = registry.clone();
        tokio::spawn(async move { registry.resolve("/model/kitchen/stew").await.unwrap() })
    };
    let (first, second) = (ask(), ask());
    idle().await;

    first.abort();
    idle().await;
    let third = ask();
    idle().await;
    gate.add_permits(50);

    assert!(Arc::ptr_eq(&second.await.unwrap(), &third.await.unwrap()));
    assert_eq!(kitchen.resolves.get(), 2);
}

#[tokio::test]
async fn different_names_do_not_wait_for_each_other() {
    let gate = Arc::new(Semaphore::new(0));
    let (registry, kitchen) = with(Kitchen {
        gate: Some(Arc::clone(&gate)),
        ..Kitchen::default()
    });
    for name in ["stew", "pie", "no-cake"] {
        let registry = registry.clone();
        tokio::spawn(async move { registry.lookup(&format!("/model/kitchen/{name}")).await });
    }

    idle().await;

    assert_eq!(kitchen.resolves.get(), 3);
}

#[tokio::test]
async fn a_name_that_does_not_exist_is_asked_for_each_time() {
    let (registry, kitchen) = with(Kitchen::default());

    for _ in 0..3 {
        assert!(registry.lookup("/model/kitchen/no-cake").await.unwrap().is_none());
    }
    assert!(registry.lookup("/tool/kitchen/stew").await.unwrap().is_none());

    assert_eq!(kitchen.resolves.get(), 4);
}

#[tokio::test]
async fn a_look_up_fails_with_the_error_of_the_plugin() {
    let (registry, kitchen) = with(Kitchen::default());

    for _ in 0..2 {
        assert_failed(
            registry.lookup("/model/kitchen/poison").await,
            Status::PermissionDenied,
            None,
        );
    }

    assert_eq!(kitchen.resolves.get(), 2);
}

#[tokio::test]
async fn a_plugin_of_the_parent_serves_its_children_and_keeps_what_it_made() {
    let (parent, kitchen) = with(Kitchen::default());
    let (one, two) = (parent.child(), parent.child());

    let first = one.lookup("/model/kitchen/stew").await.unwrap().unwrap();
    let second = two.lookup("/model/kitchen/stew").await.unwrap().unwrap();

    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!((kitchen.inits.get(), kitchen.resolves.get()), (1, 1));
}

#[tokio::test]
async fn a_child_may_shadow_what_the_parents_plugin_has() {
    let (parent, kitchen) = with(Kitchen::default());
    let child = parent.child();
    child.register(dish("stew")).unwrap();

    child.lookup("/model/kitchen/stew").await.unwrap().unwrap();

    assert_eq!((kitchen.inits.get(), kitchen.resolves.get()), (0, 0));
}

#[tokio::test]
async fn a_plugin_is_installed_once() {
    let (registry, _kitchen) = with(Kitchen::default());

    let again = registry.install(Arc::new(Kitchen::default()));

    let error = assert_failed(again, Status::AlreadyExists, None);
    assert!(error.message().contains("'kitchen'"), "{error}");
}

#[tokio::test]
async fn a_listing_shows_what_plugins_have_made_and_could_make() {
    let (parent, kitchen) = with(Kitchen::default());
    parent.lookup("/model/kitchen/pie").await.unwrap();
    let child = parent.child();
    let own = Action::new(ActionType::MODEL, "kitchen/stew", |(): (), _| async { Ok(()) });
    child
        .register(Arc::new(own.with_description("of our own")))
        .unwrap();

    let listed = child.list().await.unwrap();

    assert_eq!(
        listed.keys().collect::<Vec<_>>(),
        ["/model/kitchen/pie", "/model/kitchen/soup", "/model/kitchen/stew"]
    );
    assert_eq!(
        listed["/model/kitchen/stew"].description.as_deref(),
        Some("of our own")
    );
    assert_eq!((kitchen.inits.get(), kitchen.lists.get()), (1, 1));
}

#[tokio::test]
async fn a_plugin_that_cannot_be_initialised_fails_the_listing() {
    let (registry, _kitchen) = with(Kitchen {
        failures: 1.into(),
        ..Kitchen::default()
    });

    assert_failed(registry.list().await, Status::Unavailable, None);
    assert!(registry.list().await.is_ok());
}
