//! A reservation is renewed while its response runs, on a driven clock.

use std::time::Duration;

use super::{ESTIMATE, RULES, Scene, on_both_providers, open, status};

on_both_providers!(a_body_may_outlast_the_hold);

/// Nobody polls the body meanwhile, as if the client read nothing.
async fn a_body_may_outlast_the_hold(scene: &Scene) {
    let open = open(scene.layer()).await;
    scene.assert_renewed().await;
    for _ in 0..30 {
        scene.clock.advance(Duration::from_secs(10));
        scene.assert_renewed().await;
        assert_eq!(status(scene.layer()).await, 429);
    }
    assert_eq!(scene.left().await, [0, 1_000 - ESTIMATE]);
    drop(open);
    scene.assert_left([1, 1_000 - ESTIMATE]).await;
    assert_eq!(scene.clock.next_wake(), None, "no timer is left");
}

/// Where no rule holds anything, nothing is renewed.
#[tokio::test]
async fn without_a_counter_there_is_no_timer() {
    let scene = Scene::local("units: [tokens]\nrules: []");
    let open = open(scene.layer()).await;
    assert_eq!(scene.clock.next_wake(), None);
    drop(open);
}

/// A middleware without Redis needs no async runtime.
#[test]
fn no_runtime_is_needed() {
    let scene = Scene::local(RULES);
    smol::block_on(async {
        let open = open(scene.layer()).await;
        for _ in 0..10 {
            scene.clock.advance(Duration::from_secs(10));
            assert_eq!(scene.left().await[0], 0);
        }
        drop(open);
        assert_eq!(scene.left().await[0], 1);
    });
}
