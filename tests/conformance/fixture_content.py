"""What the conformance suite expects to find, word for word: tools, resources, prompts, and the forms they ask with."""

import base64
import io
import json
import struct
import wave
import zlib
from typing import Any

from mcp import types

JSON_SCHEMA = "https://json-schema.org/draft/2020-12/schema"
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}


def _png() -> str:
    """One red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\x00\xff\x00\x00")
    image = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return base64.b64encode(image).decode()


def _wav() -> str:
    """A few samples of silence."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(bytes(16))
    return base64.b64encode(file.getvalue()).decode()


PNG, WAV = _png(), _wav()


def text(words: str) -> types.TextContent:
    return types.TextContent(type="text", text=words)


def image() -> types.ImageContent:
    return types.ImageContent(type="image", data=PNG, mime_type="image/png")


def embedded(uri: str, words: str, mime_type: str = "text/plain") -> types.EmbeddedResource:
    contents = types.TextResourceContents(uri=uri, mime_type=mime_type, text=words)
    return types.EmbeddedResource(type="resource", resource=contents)


def said(*content: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[text(one) if isinstance(one, str) else one for one in content])


FIXED_RESULTS = {
    "test_simple_text": said("This is a simple text response for testing."),
    "test_image_content": said(image()),
    "test_audio_content": said(types.AudioContent(type="audio", data=WAV, mime_type="audio/wav")),
    "test_embedded_resource": said(embedded("test://embedded-resource", "This is an embedded resource content.")),
    "test_multiple_content_types": said(
        "Multiple content types test:",
        image(),
        embedded("test://mixed-content-resource", '{"test":"data","value":123}', "application/json"),
    ),
    "test_error_handling": types.CallToolResult(
        content=[text("This tool intentionally returns an error for testing")], is_error=True
    ),
}

KEYWORDS_OF_2020_12: dict[str, Any] = {
    "$schema": JSON_SCHEMA,
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def _one_string(name: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}


INPUT_SCHEMAS = {
    "test_sampling": _one_string("prompt"),
    "test_elicitation": _one_string("message"),
    "json_schema_2020_12_tool": KEYWORDS_OF_2020_12,
    "test_x_mcp_header": {
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        "required": ["region"],
    },
}
"""Those of the tools that take arguments."""

DETAILS_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    },
    "required": ["username", "email"],
}
DEFAULTS_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
}
_OPTIONS = ["option1", "option2", "option3"]


def _titled(*titles: str) -> list[dict[str, str]]:
    return [{"const": f"value{number}", "title": title} for number, title in enumerate(titles, 1)]


ENUMS_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": _OPTIONS},
        "titledSingle": {"type": "string", "oneOf": _titled("First Option", "Second Option", "Third Option")},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _OPTIONS}},
        "titledMulti": {
            "type": "array",
            "items": {"anyOf": _titled("First Choice", "Second Choice", "Third Choice")},
        },
    },
}

STATIC_RESOURCES = {
    "test://static-text": types.TextResourceContents(
        uri="test://static-text", mime_type="text/plain", text="This is the content of the static text resource."
    ),
    "test://static-binary": types.BlobResourceContents(uri="test://static-binary", mime_type="image/png", blob=PNG),
    "test://watched-resource": types.TextResourceContents(
        uri="test://watched-resource", mime_type="text/plain", text="Watched."
    ),
}
RESOURCES = [
    types.Resource(uri=uri, name=uri.removeprefix("test://"), description=f"Holds {uri}.", mime_type=one.mime_type)
    for uri, one in STATIC_RESOURCES.items()
]
TEMPLATE_PREFIX, TEMPLATE_SUFFIX = "test://template/", "/data"
TEMPLATES = [
    types.ResourceTemplate(
        uri_template=f"{TEMPLATE_PREFIX}{{id}}{TEMPLATE_SUFFIX}",
        name="template",
        description="Made of its id.",
        mime_type="application/json",
    )
]


def read(uri: str) -> types.TextResourceContents | types.BlobResourceContents | None:
    if uri.startswith(TEMPLATE_PREFIX) and uri.endswith(TEMPLATE_SUFFIX):
        key = uri[len(TEMPLATE_PREFIX) : -len(TEMPLATE_SUFFIX)]
        data = {"id": key, "templateTest": True, "data": f"Data for ID: {key}"}
        words = json.dumps(data, separators=(",", ":"))
        return types.TextResourceContents(uri=uri, mime_type="application/json", text=words)
    return STATIC_RESOURCES.get(uri)


def _argument(name: str, words: str) -> types.PromptArgument:
    return types.PromptArgument(name=name, description=words, required=True)


PROMPTS = [
    types.Prompt(name="test_simple_prompt", description="Simple."),
    types.Prompt(
        name="test_prompt_with_arguments",
        description="Takes arguments.",
        arguments=[_argument("arg1", "First test argument"), _argument("arg2", "Second test argument")],
    ),
    types.Prompt(
        name="test_prompt_with_embedded_resource",
        description="Embeds a resource.",
        arguments=[_argument("resourceUri", "URI of the resource to embed")],
    ),
    types.Prompt(name="test_prompt_with_image", description="Shows an image."),
    types.Prompt(name="test_input_required_result_prompt", description="Asks back."),
]


def prompt(name: str, arguments: dict[str, str]) -> types.GetPromptResult | None:
    content: list[Any]
    match name:
        case "test_simple_prompt":
            content = [text("This is a simple prompt for testing.")]
        case "test_prompt_with_arguments":
            first, second = arguments.get("arg1"), arguments.get("arg2")
            content = [text(f"Prompt with arguments: arg1='{first}', arg2='{second}'")]
        case "test_prompt_with_embedded_resource":
            uri = arguments.get("resourceUri", "test://embedded")
            words = "Embedded resource content for testing."
            content = [embedded(uri, words), text("Please process the embedded resource above.")]
        case "test_prompt_with_image":
            content = [image(), text("Please analyze the image above.")]
        case _:
            return None
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=one) for one in content])
