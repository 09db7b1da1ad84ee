"""A batch by the stock OpenAI client: upload, create, poll, download.

export OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=hr-...
python samples/batch.py
"""

import json
import time

from openai import OpenAI

MODEL = "smollm2-135m-instruct"
QUESTIONS = ("What is the capital of France?", "What is the capital of Italy?")
ENDED = ("completed", "failed", "expired", "cancelled")

client = OpenAI()
lines = [
    {
        "custom_id": f"question-{number}",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {
            "model": MODEL,
            "messages": [{"role": "user", "content": question}],
            "max_completion_tokens": 24,
            "temperature": 0,
        },
    }
    for number, question in enumerate(QUESTIONS, start=1)
]
content = "".join(json.dumps(line) + "\n" for line in lines).encode()
file = client.files.create(file=("questions.jsonl", content), purpose="batch")
batch = client.batches.create(
    input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
)
while batch.status not in ENDED:
    time.sleep(1)
    batch = client.batches.retrieve(batch.id)
print(batch.id, batch.status, batch.request_counts)
if batch.output_file_id:
    for line in client.files.content(batch.output_file_id).text.splitlines():
        answer = json.loads(line)
        choice = answer["response"]["body"]["choices"][0]
        print(f"{answer['custom_id']}: {choice['message']['content']}")
