"""Builds a server's description in OpenAPI 3.1, and a page without scripts that shows it."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from albert.serving import (
    hosted_models,
    inference_protocol,
    requests,
    server_log,
    tensorflow_protocol,
    tensors,
)

_PLAIN = re.compile(r"[\w.:\[\]-]+", re.ASCII)  # hosts that need no quotes in a shell
DOCUMENT, PAGE = "/openapi.json", "/docs"
_VERSION = hosted_models.VERSION
_POST = "post"  # the method of the paths that answer
_ERRORS = {
    400: "The request is invalid, or not JSON.",
    403: "A page of another site asks in a browser.",
    404: "There is no such model, version or path.",
    408: "The request did not come in time.",
    413: "The request is too large.",
    415: "The request is compressed.",
    421: "The name in Host is not allowed.",
    503: "Too many texts wait, there was no answer within the time limit, the model is being "
    "loaded, or the server stops; see Retry-After.",
}
_OBJECT: dict[str, Any] = {"type": "object"}
_RESULT: dict[str, Any] = {
    "type": "object",
    "properties": {
        requests.TRUNCATED: {
            "const": True,
            "description": "Texts were longer than the model's input and were cut; else missing.",
        }
    },
}
_REPLY = {
    "type": "object",
    "properties": {**_RESULT["properties"], "results": {"type": "array", "items": _RESULT}},
}
_ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
_STYLE = """\
body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:0 auto;padding:1rem;color:#222;
background:#fff}h1{font-size:1.5rem}h2{font-size:1.2rem;margin:2rem 0 0}h3{font-size:1rem;
margin:1.2rem 0 .25rem}code,pre{font:14px/1.4
ui-monospace,monospace;overflow-wrap:anywhere}pre{background:#f4f4f4;padding:.5rem;white-space:
pre-wrap}b{display:inline-block;min-width:3.5rem;color:#054}p{margin:.25rem 0}
@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}pre{background:#262626}
b{color:#7db}a{color:#9cf}}"""


def document(
    models: Iterable[hosted_models.HostedModel], limits: requests.Limits, version: str
) -> dict[str, Any]:
    """Returns the description of a server, ready for JSON; paths that answer come first.

    Of models that are being loaded only the names are known.
    """
    paths: dict[str, Any] = {}
    for hosted in models:
        paths |= _own(hosted, limits) | _tensorflow(hosted, limits) | _inference(hosted)
    paths = dict(sorted(paths.items(), key=lambda item: _POST not in item[1]))
    paths |= {
        "/livez": _get("Whether the process answers at all.", "server"),
        "/readyz": _get("Whether all models answer.", "server", 503),
        "/healthz": _get("The same as /readyz.", "server", 503),
        "/metrics": _get("Metrics for Prometheus.", "server", media="text/plain"),
        "/v1/models": _get("All models: kind, labels, path and form of examples.", "models"),
        "/v2": _get("Name, version and extensions of the server.", "Open Inference Protocol"),
        "/v2/health/live": _get("As /livez.", "Open Inference Protocol"),
        "/v2/health/ready": _get("As /readyz.", "Open Inference Protocol", 503),
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ALBERT",
            "version": version,
            "description": "Answers of fine-tuned models. Every error is a JSON object with the "
            f"field error. {server_log.REQUEST_ID} of a request is returned and logged.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": {
                "Error": _ERROR,
                "Tensor": inference_protocol.TENSOR_SCHEMA,
                "InferenceRequest": inference_protocol.REQUEST_SCHEMA,
            }
        },
    }


# --- operations ---------------------------------------------------------------------------------


def _content(schema: dict[str, Any], media: str = "application/json") -> dict[str, Any]:
    return {media: {"schema": schema}}


def _get(summary: str, tag: str, *errors: int, media: str = "application/json") -> dict[str, Any]:
    return {"get": _operation(summary, tag, errors, media)}


def _post(summary: str, tag: str, schema: dict[str, Any], example: Any) -> dict[str, Any]:
    body = {"application/json": {"schema": schema} | ({"example": example} if example else {})}
    operation = _operation(summary, tag, tuple(_ERRORS))
    return {_POST: operation | {"requestBody": {"required": True, "content": body}}}


def _operation(
    summary: str, tag: str, errors: Sequence[int], media: str = "application/json"
) -> dict[str, Any]:
    schema = _OBJECT if media == "application/json" else {"type": "string"}
    replies: dict[str, Any] = {"200": {"description": "OK", "content": _content(schema, media)}}
    for status in errors:
        error = _content({"$ref": f"{inference_protocol.SCHEMAS}/Error"})
        replies[str(status)] = {"description": _ERRORS[status], "content": error}
    return {"summary": summary, "tags": [tag], "responses": replies}


def _own(hosted: hosted_models.HostedModel, limits: requests.Limits) -> dict[str, Any]:
    """Returns the paths of the toolkit's own format, which depend on the kind of the model."""
    if hosted.model is None:
        return {}
    form, tag = hosted.model.form, hosted.name
    one = _example(form)
    schema = {"anyOf": [one, _exactly(examples=_several(one, limits))]}
    operation = _post("Answers an example, or a list of examples.", tag, schema, form.example)
    operation[_POST]["responses"]["200"]["content"] = _content(_REPLY)
    path = f"/models/{hosted.name}{form.entry}"
    return dict.fromkeys((hosted.path, path), operation)


def _exactly(**properties: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of an object that has these properties and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _several(schema: dict[str, Any], limits: requests.Limits) -> dict[str, Any]:
    return {"type": "array", "items": schema, "minItems": 1, "maxItems": limits.examples}


def _example(form: requests.RequestSchema) -> dict[str, Any]:
    """Returns the schema of an example, in which a field may have its other name."""
    schema = form.schema | {"additionalProperties": False}
    for name, other in ((field.name, field.other_name) for field in form.fields):
        if other:
            schema["properties"][other] = schema["properties"][name]
            schema["required"].remove(name)
            schema["oneOf"] = [{"required": [name]}, {"required": [other]}]
    return schema


def _tensorflow_request(form: requests.RequestSchema, limits: requests.Limits) -> dict[str, Any]:
    """Returns the schema of a request in the format of TensorFlow Serving."""
    row = _example(form)
    columns = row | {
        "properties": {name: _several(of, limits) for name, of in row["properties"].items()}
    }
    columns.pop("examples", None)  # which are rows
    rows = _several(row, limits)
    if form.bare:  # Its value may come without a name.
        rows = _several({"anyOf": [row, row["properties"][form.bare]]}, limits)
        columns = {"anyOf": [columns, rows]}
    schemas = [_exactly(instances=rows), _exactly(inputs=columns)]
    for schema in schemas:
        schema["properties"]["signature_name"] = {"const": tensorflow_protocol.SIGNATURE}
    return {"oneOf": schemas}


def _tensorflow(hosted: hosted_models.HostedModel, limits: requests.Limits) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    example = hosted.model and {"instances": [hosted.model.form.example]}
    schema = _tensorflow_request(hosted.model.form, limits) if hosted.model else _OBJECT
    for path in _versions(f"/v1/models/{hosted.name}"):
        paths[path] = _get("State of the model.", hosted.name)
        paths[f"{path}/metadata"] = _get("Inputs and outputs.", hosted.name, 503)
        paths[f"{path}:predict"] = _post(
            "Answers examples in the format of TensorFlow Serving.", hosted.name, schema, example
        )
    return paths


def _inference(hosted: hosted_models.HostedModel) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    schema = {"$ref": f"{inference_protocol.SCHEMAS}/InferenceRequest"}
    example = hosted.model and {"inputs": list(_inputs(hosted.model.form))}
    for path in _versions(f"{inference_protocol.ROOT}/models/{hosted.name}"):
        paths[path] = _get("Inputs and outputs.", hosted.name, 503)
        paths[f"{path}/ready"] = _get("Whether the model answers.", hosted.name, 503)
        paths[f"{path}/infer"] = _post(
            "Answers texts or ids in the Open Inference Protocol.", hosted.name, schema, example
        )
    return paths


def _versions(path: str) -> tuple[str, str]:
    return path, f"{path}/versions/{_VERSION}"


def _inputs(form: requests.RequestSchema) -> Iterator[dict[str, Any]]:
    """Yields the tensors of an example of a form."""
    for tensor in tensors.text_inputs(form):
        if tensor.name in form.optional:
            continue
        value = form.example[tensor.name]
        is_list = len(tensor.shape) == 2
        yield {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": [1, len(value)] if is_list else [1],
            "data": value if is_list else [value if isinstance(value, str) else " ".join(value)],
        }


# --- page ---------------------------------------------------------------------------------------


def page(described: dict[str, Any], host: str) -> tuple[str, dict[str, str]]:
    """Returns HTML that shows what `document` returns, and its headers.

    It has no script and no link to another server, and the headers allow none. Commands name
    `host`, with which a client reached the server.
    """
    lines = [
        "<!doctype html>", '<html lang="en">', '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>ALBERT {html.escape(described['info']['version'])}</title>",
        f"<style>{_STYLE}</style>", "<h1>Paths of this server</h1>",
        f"<p>{html.escape(described['info']['description'])}</p>",
        f'<p>The same as <a href="{DOCUMENT}">OpenAPI</a>.</p>',
    ]  # fmt: skip
    host = host if _PLAIN.fullmatch(host) else "localhost"
    for title, answers in (("What answers", True), ("Names, states and metrics", False)):
        lines.append(f"<h2>{title}</h2>")
        for path, operations in described["paths"].items():
            for method, operation in operations.items():
                if (method == _POST) == answers:
                    lines += _section(host, path, method, operation)
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    return "\n".join(lines), {
        "Content-Security-Policy": policy,
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }


def _section(host: str, path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"<h3><b>{method.upper()}</b> <code>{html.escape(path)}</code></h3>"
    yield f"<p>{html.escape(operation['summary'])}</p>"
    content = operation.get("requestBody", {}).get("content", {})
    example = content.get("application/json", {}).get("example")
    if example:
        body = json.dumps(example).replace("'", "\\u0027")
        yield f"<pre>curl {host}{html.escape(path)} -d '{html.escape(body)}'</pre>"
    errors = ", ".join(status for status in operation["responses"] if status != "200")
    if errors:
        yield f"<p>Errors: {errors}</p>"
