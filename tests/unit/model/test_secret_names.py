"""Which variables are kept from view, and what is left of a job and a script without them."""

from __future__ import annotations

import pytest

from overspan.bridge.model.job import new_job
from overspan.bridge.model.secret_names import HIDDEN, hide_exports, hide_secrets, is_secret
from overspan.bridge.readers.submission import Submission, read_submission

FILE = """\
name: fit
envs: {HF_TOKEN: "it's hf", EPOCHS: "3", DB: "postgres://ana:pw@db/x"}
secrets: {KEYED: abc}
run: 'true'
"""


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "hf_token", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "WANDB_API_KEY", "OPENAI_APIKEY", "DB_PASS"),
        *("GOOGLE_CREDENTIALS", "CLIENT_SECRET_ID", "REGISTRY_AUTH", "GH_PAT", "TOKEN", "SSH_KEYS", "privateKey"),
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name, "x")


@pytest.mark.parametrize(
    "name",
    ["PATH", "PWD", "OLDPWD", "TOKENIZERS_PARALLELISM", "SSH_AUTH_SOCK", "KEYBOARD", "MONKEY", "COMPASS", "AUTHOR", ""],
)
def test_names_of_others(name: str) -> None:
    assert not is_secret(name, "x")


def test_an_address_with_a_password_is_a_secret_and_an_empty_value_is_none() -> None:
    assert is_secret("DATABASE", "postgres://ana:geheim@db/fit") and is_secret("REDIS", "redis://:geheim@cache")
    assert not is_secret("PROXY", "http://proxy:3128") and not is_secret("HF_TOKEN", "")


def test_neither_the_job_nor_its_script_tells_them() -> None:
    job = new_job(
        1, read_submission(Submission("job_file", FILE, "f.yaml", environment={"MY_TOKEN": "t"}), now=1.0), 1.0
    )
    shown = hide_secrets(job).spec
    assert shown.tasks[0].env == {"HF_TOKEN": HIDDEN, "EPOCHS": "3", "DB": HIDDEN}
    assert set(shown.tasks[0].secrets.values()) == {HIDDEN}
    assert "t" not in shown.environment.values()
    script = "export HF_TOKEN='it'\"'\"'s hf'\nexport EPOCHS=3\nexport KEYED=abc\necho hf\n"
    assert hide_exports(script, job) == "export HF_TOKEN='***'\nexport EPOCHS=3\nexport KEYED='***'\necho hf\n"
