"""The first request with a new key, in three languages, ready to be pasted.

Pure. Called by the page that shows a secret once.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Snippet:
    """Some code, and what it is written in."""

    title: str
    language: str
    text: str


def chat_snippets(base_url: str, secret: str, model: str) -> list[Snippet]:
    """A chat completion; `base_url` ends with /v1."""
    return [
        Snippet("curl", "bash", chat_curl(base_url, secret, model)),
        Snippet(
            "Python",
            "python",
            f"""from openai import OpenAI

client = OpenAI(base_url="{base_url}", api_key="{secret}")
answer = client.chat.completions.create(
    model="{model}",
    messages=[{{"role": "user", "content": "Say hello."}}],
)
print(answer.choices[0].message.content)""",
        ),
        Snippet(
            "Node",
            "javascript",
            f"""import OpenAI from "openai";

const client = new OpenAI({{ baseURL: "{base_url}", apiKey: "{secret}" }});
const answer = await client.chat.completions.create({{
  model: "{model}",
  messages: [{{ role: "user", content: "Say hello." }}],
}});
console.log(answer.choices[0].message.content);""",
        ),
    ]


def chat_curl(base_url: str, secret: str, model: str) -> str:
    """A chat completion from a shell."""
    return f"""curl {base_url}/chat/completions \\
  -H "Authorization: Bearer {secret}" \\
  -H "Content-Type: application/json" \\
  -d '{{"model": "{model}", "messages": [{{"role": "user", "content": "Say hello."}}]}}'"""


def get_snippets(url: str, secret: str) -> list[Snippet]:
    """A request that reads something, for keys that do not chat."""
    return [Snippet("curl", "bash", f'curl {url} \\\n  -H "Authorization: Bearer {secret}"')]
