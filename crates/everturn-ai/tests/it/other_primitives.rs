//! Embedders, retrievers, indexers, rerankers, evaluators and background models as actions.

use std::sync::{Arc, Mutex};

use everturn_ai::{
    BackgroundModel, Document, EmbedResponse, EmbedderInfo, Embedding, EvalDataPoint, EvalRequest,
    EvalStatus, Evaluation, EvaluatorInfo, Generate, ModelInfo, Operation, RankedDocument,
    RankedDocumentMetadata, RerankerResponse, RetrieverResponse, Score, cancel_operation, check_operation,
    define_embedder, define_evaluator, define_indexer, define_reranker, define_retriever, embed, evaluate,
    index, rerank, retrieve,
};
use everturn_core::{Action, ActionType, Error, Registry, Status};
use serde_json::json;

#[tokio::test]
async fn documents_are_embedded() {
    let registry = Registry::new();
    let info = EmbedderInfo {
        dimensions: Some(1),
        ..EmbedderInfo::default()
    };
    define_embedder(&registry, "length", &info, |request, _context| async move {
        let embedding = |document: &Document| Embedding {
            embedding: vec![f32::from(u8::try_from(document.text().len()).unwrap())],
            metadata: None,
        };
        Ok(EmbedResponse {
            embeddings: request.input.iter().map(embedding).collect(),
        })
    })
    .unwrap();

    let embeddings = embed(&registry, "length", ["leek", "pea"]).await.unwrap();
    let missing = embed(&registry, "width", ["leek"]).await.unwrap_err();

    assert_eq!(
        embeddings.iter().map(|one| one.embedding[0]).collect::<Vec<_>>(),
        [4.0, 3.0]
    );
    assert_eq!(missing.status(), Status::NotFound);
    let metadata = &registry
        .get("/embedder/length")
        .unwrap()
        .descriptor()
        .metadata
        .clone();
    assert_eq!(metadata["info"]["dimensions"], 1);
}

#[tokio::test]
async fn indexed_documents_are_retrieved_and_reranked() {
    let registry = Registry::new();
    let shelf: Arc<Mutex<Vec<Document>>> = Arc::default();
    let (filling, reading) = (Arc::clone(&shelf), Arc::clone(&shelf));
    define_indexer(&registry, "shelf", move |request, _context| {
        filling.lock().unwrap().extend(request.documents);
        async { Ok(()) }
    })
    .unwrap();
    define_retriever(&registry, "shelf", move |request, _context| {
        let query = request.query.text().into_owned();
        let found = reading
            .lock()
            .unwrap()
            .iter()
            .filter(|document| document.text().contains(&query))
            .cloned()
            .collect();
        async { Ok(RetrieverResponse { documents: found }) }
    })
    .unwrap();
    define_reranker(&registry, "reversed", |request, _context| async move {
        let ranked = |(rank, document): (usize, Document)| RankedDocument {
            content: document.content,
            metadata: RankedDocumentMetadata {
                score: rank.into(),
                extra: serde_json::Map::new(),
            },
        };
        Ok(RerankerResponse {
            documents: request
                .documents
                .into_iter()
                .rev()
                .enumerate()
                .map(ranked)
                .collect(),
        })
    })
    .unwrap();

    index(&registry, "shelf", ["leek soup", "pea soup", "pie"], None)
        .await
        .unwrap();
    let found = retrieve(&registry, "shelf", "soup", None).await.unwrap();
    let ranked = rerank(&registry, "reversed", "soup", found, None).await.unwrap();

    let texts: Vec<_> = ranked
        .iter()
        .map(|document| document.content[0].as_text().unwrap())
        .collect();
    assert_eq!(texts, ["pea soup", "leek soup"]);
}

#[tokio::test]
async fn a_case_that_fails_is_scored_as_such_and_the_run_goes_on() {
    let registry = Registry::new();
    let info = EvaluatorInfo {
        evaluator_is_billed: false,
        evaluator_display_name: "Short".to_owned(),
        evaluator_definition: "Whether the output is short.".to_owned(),
    };
    define_evaluator(
        &registry,
        "short",
        &info,
        |case: EvalDataPoint, _options| async move {
            match case.output {
                None => Err(Error::invalid_argument("there is no output").into()),
                Some(output) if output == "boom" => panic!("boom"),
                Some(_) => Ok(Evaluation::One(Score {
                    status: Some(EvalStatus::Pass),
                    ..Score::default()
                })),
            }
        },
    )
    .unwrap();
    let case = |output: Option<&str>| EvalDataPoint {
        output: output.map(Into::into),
        ..EvalDataPoint::default()
    };
    let request = EvalRequest {
        dataset: vec![case(None), case(Some("boom")), case(Some("ok"))],
        eval_run_id: "run".to_owned(),
        options: None,
    };

    let scores = evaluate(&registry, "short", request).await.unwrap();

    let status = |evaluation: &Evaluation| match evaluation {
        Evaluation::One(score) => score.status,
        Evaluation::Many(_) => None,
    };
    let statuses: Vec<_> = scores
        .iter()
        .filter_map(|score| status(&score.evaluation))
        .collect();
    assert_eq!(statuses, [EvalStatus::Fail, EvalStatus::Fail, EvalStatus::Pass]);
    assert!(scores.iter().all(|score| !score.test_case_id.is_empty()));
}

fn film() -> BackgroundModel {
    BackgroundModel::new(
        "film",
        ModelInfo::default(),
        |request, _context| async move {
            assert_eq!(request.messages.len(), 1);
            Ok(Operation {
                id: "7".to_owned(),
                ..Operation::default()
            })
        },
        |operation, _context| async move {
            Ok(Operation {
                done: Some(true),
                output: Some(json!("film")),
                ..operation
            })
        },
    )
}

#[tokio::test]
async fn a_background_model_gives_an_operation_to_check() {
    let registry = Registry::new();
    film().register(&registry).unwrap();

    let response = Generate::new(&registry).model("film").prompt("p").await.unwrap();
    let operation = *response.operation.clone().unwrap();
    let checked = check_operation(&registry, operation.clone()).await.unwrap();
    let cancelled = cancel_operation(&registry, operation).await.unwrap_err();

    assert_eq!(checked.action.as_deref(), Some("/background-model/film"));
    assert_eq!(checked.done, Some(true));
    assert_eq!(cancelled.status(), Status::Unavailable);
}

#[tokio::test]
async fn an_operation_can_be_cancelled_where_the_model_can() {
    let registry = Registry::new();
    film()
        .with_cancel(|operation, _context| async move { Ok(operation) })
        .register(&registry)
        .unwrap();
    let operation = Operation {
        id: "7".to_owned(),
        action: Some("/background-model/film".to_owned()),
        ..Operation::default()
    };

    let cancelled = cancel_operation(&registry, operation.clone()).await.unwrap();
    let anonymous = check_operation(
        &registry,
        Operation {
            action: None,
            ..operation
        },
    )
    .await
    .unwrap_err();

    assert_eq!(cancelled.id, "7");
    assert_eq!(anonymous.status(), Status::InvalidArgument);
}

#[tokio::test]
async fn siblings_are_found_under_the_key_that_other_runtimes_use() {
    let registry = Registry::new();
    let check = Action::new(
        ActionType::CHECK_OPERATION,
        "far/film/check",
        |operation: Operation, _context| async move {
            Ok(Operation {
                done: Some(true),
                ..operation
            })
        },
    );
    registry.register(Arc::new(check)).unwrap();
    let operation = Operation {
        id: "7".to_owned(),
        action: Some("/background-model/far/film".to_owned()),
        ..Operation::default()
    };

    assert_eq!(
        check_operation(&registry, operation).await.unwrap().done,
        Some(true)
    );
}
