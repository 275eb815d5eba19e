//! Arbitrary values of every wire type.

use std::sync::Arc;

use everturn_ai::*;
use proptest::{collection::vec, option::of, prelude::*, sample::select};
use serde_json::{Number, Value};

pub(crate) fn text() -> impl Strategy<Value = String> {
    ".{0,8}"
}

/// Any JSON value but `null`, which an optional field cannot tell from being absent.
pub(crate) fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        text().prop_map(Value::from)
    ];
    leaf.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            vec(("[a-z]{1,3}", inner), 0..3).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

pub(crate) fn object() -> impl Strategy<Value = JsonObject> {
    vec(("[A-Z]{1,4}", json()), 0..3).prop_map(|members| members.into_iter().collect())
}

fn schema_object() -> impl Strategy<Value = Value> {
    object().prop_map(Value::Object)
}

fn quarter() -> impl Strategy<Value = f64> {
    any::<i32>().prop_map(|n| f64::from(n) / 4.0)
}

fn number() -> impl Strategy<Value = Number> {
    any::<i32>().prop_map(Number::from)
}

pub(crate) fn media() -> impl Strategy<Value = Media> {
    (text(), of(text())).prop_map(|(url, content_type)| Media {
        url,
        content_type,
        ..Media::default()
    })
}

pub(crate) fn tool_request() -> impl Strategy<Value = ToolRequest> {
    let input = of(prop_oneof![json(), Just(Value::Null)]);
    (text(), of(text()), input, any::<bool>()).prop_map(|(name, reference, input, partial)| ToolRequest {
        name,
        reference,
        input,
        partial,
        ..ToolRequest::default()
    })
}

pub(crate) fn tool_response() -> impl Strategy<Value = ToolResponse> {
    let output = of(prop_oneof![json(), Just(Value::Null)]);
    let content = vec(
        prop_oneof![text().prop_map(Part::text), media().prop_map(Part::from)],
        0..3,
    );
    (text(), of(text()), output, content).prop_map(|(name, reference, output, content)| ToolResponse {
        name,
        reference,
        output,
        content,
        ..ToolResponse::default()
    })
}

fn document_part() -> impl Strategy<Value = Part> {
    let kind = prop_oneof![text().prop_map(Part::text), media().prop_map(Part::from)];
    (kind, object()).prop_map(|(part, metadata)| part.with_metadata(metadata))
}

pub(crate) fn part() -> impl Strategy<Value = Part> {
    let kind = prop_oneof![
        text().prop_map(Part::text),
        media().prop_map(Part::from),
        tool_request().prop_map(Part::from),
        tool_response().prop_map(Part::from),
        prop_oneof![json(), Just(Value::Null)].prop_map(Part::data),
        object().prop_map(Part::custom),
        text().prop_map(Part::reasoning),
        text().prop_map(Part::resource),
    ];
    (kind, object()).prop_map(|(part, metadata)| part.with_metadata(metadata))
}

fn role() -> impl Strategy<Value = Role> {
    select(vec![Role::System, Role::User, Role::Model, Role::Tool])
}

pub(crate) fn message() -> impl Strategy<Value = Message> {
    (role(), vec(part(), 0..4), object())
        .prop_map(|(role, content, metadata)| Message::new(role, content).with_metadata(metadata))
}

fn messages() -> impl Strategy<Value = Messages> {
    (vec(message(), 0..3), vec(message(), 0..3)).prop_map(|(own, shared)| {
        let mut messages = Messages::from(own);
        messages.append(History::from_iter(shared));
        messages
    })
}

pub(crate) fn document() -> impl Strategy<Value = Document> {
    (vec(document_part(), 0..3), of(object())).prop_map(|(content, metadata)| Document { content, metadata })
}

pub(crate) fn multipart() -> impl Strategy<Value = MultipartToolResponse> {
    (of(json()), vec(part(), 0..3), of(object())).prop_map(|(output, content, metadata)| {
        MultipartToolResponse {
            output,
            content,
            metadata,
        }
    })
}

pub(crate) fn tool_definition() -> impl Strategy<Value = ToolDefinition> {
    (
        text(),
        text(),
        of(schema_object()),
        of(schema_object()),
        of(text()),
        of(object()),
    )
        .prop_map(
            |(name, description, input_schema, output_schema, key, metadata)| ToolDefinition {
                name,
                description,
                input_schema,
                output_schema,
                key,
                metadata,
            },
        )
}

fn tool_choice() -> impl Strategy<Value = ToolChoice> {
    select(vec![ToolChoice::Auto, ToolChoice::Required, ToolChoice::None])
}

pub(crate) fn output_config() -> impl Strategy<Value = OutputConfig> {
    (of(text()), of(schema_object()), of(any::<bool>()), of(text())).prop_map(
        |(format, schema, constrained, content_type)| OutputConfig {
            format,
            schema,
            constrained,
            content_type,
        },
    )
}

pub(crate) fn request() -> impl Strategy<Value = ModelRequest> {
    let tools = of(vec(tool_definition(), 0..3).prop_map(Arc::from));
    let docs = of(vec(document(), 0..2).prop_map(Arc::from));
    (
        messages(),
        of(json()),
        tools,
        of(tool_choice()),
        of(output_config()),
        docs,
    )
        .prop_map(
            |(messages, config, tools, tool_choice, output, docs)| ModelRequest {
                messages,
                config,
                tools,
                tool_choice,
                output,
                docs,
            },
        )
}

fn finish_reason() -> impl Strategy<Value = FinishReason> {
    select(vec![
        FinishReason::Stop,
        FinishReason::Length,
        FinishReason::Blocked,
        FinishReason::Aborted,
        FinishReason::Interrupted,
        FinishReason::Other,
        FinishReason::Unknown,
    ])
}

pub(crate) fn usage() -> impl Strategy<Value = Usage> {
    let count = || of(any::<u32>().prop_map(u64::from));
    let custom = of(prop::collection::btree_map("[a-z]{1,4}", number(), 0..3));
    (prop::array::uniform13(count()), custom).prop_map(|(counts, custom)| Usage {
        input_tokens: counts[0],
        output_tokens: counts[1],
        total_tokens: counts[2],
        input_characters: counts[3],
        output_characters: counts[4],
        input_images: counts[5],
        output_images: counts[6],
        input_videos: counts[7],
        output_videos: counts[8],
        input_audio_files: counts[9],
        output_audio_files: counts[10],
        thoughts_tokens: counts[11],
        cached_content_tokens: counts[12],
        custom,
    })
}

pub(crate) fn operation() -> impl Strategy<Value = Operation> {
    let error = (text(), object()).prop_map(|(message, details)| OperationError { message, details });
    (
        of(text()),
        text(),
        of(any::<bool>()),
        of(json()),
        of(error),
        of(object()),
    )
        .prop_map(|(action, id, done, output, error, metadata)| Operation {
            action,
            id,
            done,
            output,
            error,
            metadata,
        })
}

pub(crate) fn response() -> impl Strategy<Value = ModelResponse> {
    let timing = (of(quarter()), of(usage()));
    let rest = (
        of(json()),
        of(json()),
        of(request().prop_map(Box::new)),
        of(operation()),
    );
    (of(message()), finish_reason(), of(text()), timing, rest).prop_map(
        |(message, finish_reason, finish_message, (latency_ms, usage), (custom, raw, request, operation))| {
            ModelResponse {
                message,
                finish_reason: Some(finish_reason),
                finish_message,
                latency_ms,
                usage,
                custom,
                raw,
                request,
                operation: operation.map(Box::new),
            }
        },
    )
}

pub(crate) fn chunk() -> impl Strategy<Value = ModelResponseChunk> {
    (
        of(role()),
        of(any::<u32>()),
        vec(part(), 0..4),
        of(json()),
        any::<bool>(),
    )
        .prop_map(|(role, index, content, custom, aggregated)| ModelResponseChunk {
            role,
            index,
            content,
            custom,
            aggregated,
        })
}

pub(crate) fn middleware_ref() -> impl Strategy<Value = MiddlewareRef> {
    (text(), of(json())).prop_map(|(name, config)| MiddlewareRef { name, config })
}

pub(crate) fn middleware_desc() -> impl Strategy<Value = MiddlewareDesc> {
    (text(), of(text()), of(schema_object()), of(object())).prop_map(
        |(name, description, config_schema, metadata)| MiddlewareDesc {
            name,
            description,
            config_schema,
            metadata,
        },
    )
}

pub(crate) fn generate_options() -> impl Strategy<Value = GenerateActionOptions> {
    let instructions = prop_oneof![
        any::<bool>().prop_map(OutputInstructions::Enabled),
        text().prop_map(OutputInstructions::Text),
    ];
    let output = (
        of(text()),
        of(text()),
        of(instructions),
        of(json()),
        of(any::<bool>()),
    )
        .prop_map(|(format, content_type, instructions, json_schema, constrained)| {
            GenerateActionOutputConfig {
                format,
                content_type,
                instructions,
                json_schema,
                constrained,
            }
        });
    let answers = (
        vec(tool_response().prop_map(Part::from), 0..2),
        vec(tool_request().prop_map(Part::from), 0..2),
        of(object()),
    )
        .prop_map(|(respond, restart, metadata)| Answers {
            respond,
            restart,
            metadata,
        });
    let names = || of(vec(text(), 0..3));
    (
        (
            of(text()),
            of(vec(document(), 0..2)),
            messages(),
            names(),
            names(),
            of(tool_choice()),
            of(json()),
        ),
        (
            of(output),
            of(answers),
            of(any::<bool>()),
            of(any::<u32>()),
            of(text()),
            of(vec(middleware_ref(), 0..3)),
        ),
    )
        .prop_map(
            |(
                (model, docs, messages, tools, resources, tool_choice, config),
                (output, answers, return_tool_requests, max_rounds, step_name, middleware),
            )| GenerateActionOptions {
                model,
                docs,
                messages,
                tools,
                resources,
                tool_choice,
                config,
                output,
                answers,
                return_tool_requests,
                max_rounds,
                step_name,
                middleware,
            },
        )
}

pub(crate) fn model_info() -> impl Strategy<Value = ModelInfo> {
    let flag = || of(any::<bool>());
    let names = || of(vec(text(), 0..3));
    let constrained = of(select(vec![
        ConstrainedSupport::None,
        ConstrainedSupport::All,
        ConstrainedSupport::NoTools,
    ]));
    let supports = (
        (flag(), flag(), flag(), flag(), names()),
        (names(), flag(), constrained, flag(), flag()),
    )
        .prop_map(
            |(
                (multiturn, media, tools, system_role, output),
                (content_type, context, constrained, tool_choice, long_running),
            )| ModelSupports {
                multiturn,
                media,
                tools,
                system_role,
                output,
                content_type,
                context,
                constrained,
                tool_choice,
                long_running,
            },
        );
    let stage = of(select(vec![
        ModelStage::Featured,
        ModelStage::Stable,
        ModelStage::Unstable,
        ModelStage::Legacy,
        ModelStage::Deprecated,
    ]));
    (names(), of(text()), of(schema_object()), of(supports), stage).prop_map(
        |(versions, label, config_schema, supports, stage)| ModelInfo {
            versions,
            label,
            config_schema,
            supports,
            stage,
            // It is no part of the wire's form.
            max_input_tokens: None,
        },
    )
}

pub(crate) fn model_reference() -> impl Strategy<Value = ModelReference> {
    (text(), of(json())).prop_map(|(name, config)| ModelReference { name, config })
}

pub(crate) fn generation_config() -> impl Strategy<Value = GenerationConfig> {
    let tokens = of(any::<u32>().prop_map(u64::from));
    (
        (of(text()), of(quarter()), tokens, of(quarter()), of(quarter())),
        (of(vec(text(), 0..5)), of(text()), object()),
    )
        .prop_map(
            |((version, temperature, max_output_tokens, top_k, top_p), (stop_sequences, api_key, extra))| {
                GenerationConfig {
                    version,
                    temperature,
                    max_output_tokens,
                    top_k,
                    top_p,
                    stop_sequences,
                    api_key,
                    extra,
                }
            },
        )
}

pub(crate) fn embed_request() -> impl Strategy<Value = EmbedRequest> {
    (vec(document(), 0..3), of(json())).prop_map(|(input, options)| EmbedRequest { input, options })
}

pub(crate) fn embed_response() -> impl Strategy<Value = EmbedResponse> {
    let vector = vec(any::<i16>().prop_map(|n| f32::from(n) / 4.0), 0..4);
    vec(
        (vector, of(object())).prop_map(|(embedding, metadata)| Embedding { embedding, metadata }),
        0..3,
    )
    .prop_map(|embeddings| EmbedResponse { embeddings })
}

pub(crate) fn retriever_request() -> impl Strategy<Value = RetrieverRequest> {
    (document(), of(json())).prop_map(|(query, options)| RetrieverRequest { query, options })
}

pub(crate) fn retriever_response() -> impl Strategy<Value = RetrieverResponse> {
    vec(document(), 0..3).prop_map(|documents| RetrieverResponse { documents })
}

pub(crate) fn reranker_request() -> impl Strategy<Value = RerankerRequest> {
    (document(), vec(document(), 0..3), of(json())).prop_map(|(query, documents, options)| RerankerRequest {
        query,
        documents,
        options,
    })
}

pub(crate) fn reranker_response() -> impl Strategy<Value = RerankerResponse> {
    let ranked =
        (vec(document_part(), 0..3), number(), object()).prop_map(|(content, score, extra)| RankedDocument {
            content,
            metadata: RankedDocumentMetadata { score, extra },
        });
    vec(ranked, 0..3).prop_map(|documents| RerankerResponse { documents })
}

pub(crate) fn eval_request() -> impl Strategy<Value = EvalRequest> {
    let point = (
        of(json()),
        of(json()),
        of(vec(json(), 0..2)),
        of(json()),
        of(text()),
        of(vec(text(), 0..2)),
    )
        .prop_map(
            |(input, output, context, reference, test_case_id, trace_ids)| EvalDataPoint {
                input,
                output,
                context,
                reference,
                test_case_id,
                trace_ids,
            },
        );
    (vec(point, 0..3), text(), of(json())).prop_map(|(dataset, eval_run_id, options)| EvalRequest {
        dataset,
        eval_run_id,
        options,
    })
}

fn score() -> impl Strategy<Value = Score> {
    let value = prop_oneof![
        any::<bool>().prop_map(ScoreValue::Verdict),
        number().prop_map(ScoreValue::Number),
        text().prop_map(ScoreValue::Text),
    ];
    let status = select(vec![EvalStatus::Unknown, EvalStatus::Pass, EvalStatus::Fail]);
    (of(text()), of(value), of(status), of(text()), of(object())).prop_map(
        |(id, score, status, error, details)| Score {
            id,
            score,
            status,
            error,
            details,
        },
    )
}

pub(crate) fn eval_response() -> impl Strategy<Value = EvalResponse> {
    let evaluation = prop_oneof![
        score().prop_map(Evaluation::One),
        vec(score(), 0..3).prop_map(Evaluation::Many)
    ];
    let response = (of(any::<u32>()), text(), of(text()), of(text()), evaluation).prop_map(
        |(sample_index, test_case_id, trace_id, span_id, evaluation)| EvalFnResponse {
            sample_index,
            test_case_id,
            trace_id,
            span_id,
            evaluation,
        },
    );
    vec(response, 0..3)
}
