"""The token routes in OpenAPI's terms, by hand: they are raw ASGI, which no generator can read.

A test fails when a route is missing here. Of the fields in docs/api.md it names the ones
that clients set most.
"""

from typing import Any

_Schema = dict[str, Any]


def _object(properties: _Schema, *required: str, **more: Any) -> _Schema:
    return {"type": "object", "properties": properties, "required": list(required), **more}


def _ref(name: str) -> _Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _array(items: _Schema) -> _Schema:
    return {"type": "array", "items": items}


def _answer(schema: _Schema, description: str, stream: str | None = None) -> _Schema:
    content: _Schema = {"application/json": {"schema": schema}}
    if stream:
        content["text/event-stream"] = {"schema": {"type": "string", "description": stream}}
    return {
        "200": {
            "description": description,
            "headers": {"x-request-id": {"schema": {"type": "string"}}},
            "content": content,
        }
    }


def _operation(
    operation_id: str, summary: str, responses: _Schema, body: str | None = None, **more: Any
) -> _Schema:
    operation: _Schema = {
        "operationId": operation_id,
        "summary": summary,
        "tags": ["inference"],
        "security": [{"apiKey": []}],
        "responses": responses,
        **more,
    }
    if body:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _ref(body)}},
        }
    return operation


_STRING: _Schema = {"type": "string"}
_INTEGER: _Schema = {"type": "integer"}
_NUMBER: _Schema = {"type": "number"}
_BOOLEAN: _Schema = {"type": "boolean"}
_TOKENS = _array(_INTEGER)
_PROMPT: _Schema = {"oneOf": [_STRING, _array(_STRING), _TOKENS, _array(_TOKENS)]}
_SAMPLING: _Schema = {
    "model": {**_STRING, "description": "A model's name, or an alias of the organization's."},
    "max_tokens": {**_INTEGER, "minimum": 1},
    "n": {**_INTEGER, "minimum": 1, "maximum": 16, "default": 1},
    "temperature": {**_NUMBER, "minimum": 0, "maximum": 2},
    "top_p": {**_NUMBER, "exclusiveMinimum": 0, "maximum": 1},
    "seed": _INTEGER,
    "stop": {"oneOf": [_STRING, {**_array(_STRING), "maxItems": 4}]},
    "stream": {**_BOOLEAN, "default": False},
    "stream_options": _object({"include_usage": _BOOLEAN}),
    "user": {**_STRING, "maxLength": 128},
}

COMPONENTS: _Schema = {
    "Error": _object(
        {
            "error": _object(
                {
                    "message": _STRING,
                    "type": _STRING,
                    "param": {"type": ["string", "null"]},
                    "code": {"type": ["string", "null"]},
                },
                "message",
                "type",
                "param",
                "code",
            )
        },
        "error",
    ),
    "Usage": _object(
        {
            "prompt_tokens": _INTEGER,
            "completion_tokens": _INTEGER,
            "total_tokens": _INTEGER,
            "prompt_tokens_details": _object({"cached_tokens": _INTEGER}),
            "completion_tokens_details": _object({"reasoning_tokens": _INTEGER}),
        },
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
    ),
    "ChatMessage": _object(
        {
            "role": {**_STRING, "enum": ["system", "developer", "user", "assistant"]},
            "content": {
                "oneOf": [_STRING, _array(_object({"type": _STRING, "text": _STRING}, "type"))]
            },
        },
        "role",
        "content",
    ),
    "ChatCompletionRequest": _object(
        {
            **_SAMPLING,
            "messages": {**_array(_ref("ChatMessage")), "maxItems": 2048},
            "max_completion_tokens": {**_INTEGER, "minimum": 1},
            "response_format": _object({"type": _STRING}, "type"),
            "safety_identifier": {**_STRING, "maxLength": 128},
            "metadata": {"type": "object", "additionalProperties": _STRING},
        },
        "model",
        "messages",
    ),
    "ChatCompletion": _object(
        {
            "id": _STRING,
            "object": {**_STRING, "enum": ["chat.completion"]},
            "created": _INTEGER,
            "model": _STRING,
            "choices": _array(
                _object(
                    {
                        "index": _INTEGER,
                        "message": _ref("ChatMessage"),
                        "finish_reason": _STRING,
                    },
                    "index",
                    "message",
                    "finish_reason",
                )
            ),
            "usage": _ref("Usage"),
        },
        "id",
        "object",
        "created",
        "model",
        "choices",
        "usage",
    ),
    "CompletionRequest": _object({**_SAMPLING, "prompt": _PROMPT}, "model", "prompt"),
    "Completion": _object(
        {
            "id": _STRING,
            "object": {**_STRING, "enum": ["text_completion"]},
            "created": _INTEGER,
            "model": _STRING,
            "choices": _array(
                _object({"index": _INTEGER, "text": _STRING, "finish_reason": _STRING})
            ),
            "usage": _ref("Usage"),
        },
        "id",
        "object",
        "choices",
        "usage",
    ),
    "EmbeddingsRequest": _object(
        {
            "model": _STRING,
            "input": _PROMPT,
            "encoding_format": {**_STRING, "enum": ["float", "base64"], "default": "float"},
            "dimensions": _INTEGER,
            "user": {**_STRING, "maxLength": 128},
        },
        "model",
        "input",
    ),
    "Embeddings": _object(
        {
            "object": {**_STRING, "enum": ["list"]},
            "model": _STRING,
            "data": _array(
                _object(
                    {
                        "object": {**_STRING, "enum": ["embedding"]},
                        "index": _INTEGER,
                        "embedding": {"oneOf": [_array(_NUMBER), _STRING]},
                    }
                )
            ),
            "usage": _object({"prompt_tokens": _INTEGER, "total_tokens": _INTEGER}),
        },
        "object",
        "model",
        "data",
        "usage",
    ),
    "Model": _object(
        {
            "id": _STRING,
            "object": {**_STRING, "enum": ["model"]},
            "created": _INTEGER,
            "owned_by": _STRING,
            "served_model": {**_STRING, "description": "What an alias stands for."},
            "context_length": _INTEGER,
            "max_completion_tokens": _INTEGER,
            "deprecated": _BOOLEAN,
            "shutdown_date": {"type": ["string", "null"], "format": "date"},
            "successor": {"type": ["string", "null"]},
            "pricing": _object(
                {
                    "prompt": _STRING,
                    "completion": _STRING,
                    "input_cache_read": _STRING,
                    "input_cache_write": _STRING,
                }
            ),
        },
        "id",
        "object",
        "created",
        "owned_by",
    ),
    "ModelList": _object(
        {"object": {**_STRING, "enum": ["list"]}, "data": _array(_ref("Model"))}, "object", "data"
    ),
    "StreamTicket": _object(
        {
            "object": {**_STRING, "enum": ["stream.ticket"]},
            "ticket": _STRING,
            "expires_in_s": _INTEGER,
        },
        "object",
        "ticket",
        "expires_in_s",
    ),
}

_SSE = "Chunks as `data:` frames, ended by `data: [DONE]`."

PATHS: _Schema = {
    "/v1/chat/completions": {
        "post": _operation(
            "chat_completions",
            "Answer a conversation",
            _answer(_ref("ChatCompletion"), "The answer, whole or as it comes.", _SSE),
            "ChatCompletionRequest",
        )
    },
    "/v1/completions": {
        "post": _operation(
            "completions",
            "Continue a text",
            _answer(_ref("Completion"), "The continuation, whole or as it comes.", _SSE),
            "CompletionRequest",
        )
    },
    "/v1/embeddings": {
        "post": _operation(
            "embeddings",
            "Turn texts into vectors",
            _answer(_ref("Embeddings"), "A vector for each input."),
            "EmbeddingsRequest",
        )
    },
    "/v1/models": {
        "get": _operation(
            "models", "List the models of the key", _answer(_ref("ModelList"), "All of them.")
        )
    },
    "/v1/models/{model}": {
        "get": _operation(
            "model",
            "Read one model",
            _answer(_ref("Model"), "The model."),
            parameters=[{"name": "model", "in": "path", "required": True, "schema": _STRING}],
        )
    },
    "/v1/stream/tickets": {
        "post": _operation(
            "stream_tickets",
            "Make a single-use ticket for a socket",
            _answer(_ref("StreamTicket"), "Valid for one socket, for a minute."),
        )
    },
}
"""By path; docs/api.md tells of the socket, `/v1/stream`, which OpenAPI has no words for."""
