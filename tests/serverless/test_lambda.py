"""The handler for AWS Lambda, under the real runtime client: frozen and killed, and fed by SQS."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from shoal.serverless import lambda_handler
from tests.deploy.helm import missing
from tests.serverless.lambda_runtime import Function, function
from tests.servers import Server, wait_until
from tests.site.responses import page
from tests.site.site import Site
from tests.system.shell import Shell

pytestmark = pytest.mark.full
SCHEDULE = {"source": "aws.events", "detail-type": "Scheduled Event", "detail": {}}


@pytest.fixture
def handler(store: Server, tmp_path: Path) -> Iterator[Function]:
    if find_spec("awslambdaric") is None:
        missing("awslambdaric")
    with function(
        tmp_path / "function", SHOAL_STORE=store.url, SHOAL_OUTPUTS_DEFAULT=f"{store.url}/0/results",
        SHOAL_FETCH_ALLOW_NETWORKS="127.0.0.0/8", SHOAL_WORKER_GRACE_SECONDS="2", SHOAL_FRONTIER_LEASE_SECONDS="4",
    ) as opened:  # fmt: skip
        yield opened


def records(store: Server) -> list[str]:
    return [json.loads(record)["url"] for record in store.ask("LRANGE", "results", 0, -1)]


def submit(shell: Shell, store: Server, name: str, url: str, delay: float) -> None:
    shell.environ["SHOAL_OUTPUTS_DEFAULT"] = f"{store.url}/0/results"
    result = shell.run(
        "submit", "--store", store.url, "--scope", "any", "--delay", delay, "--out", "default", "--name", name, url
    )
    assert result.code == 0, result.err


def test_scheduled_invocations_continue_a_crawl_and_hold_no_lease_between_them(
    site: Site, store: Server, shell: Shell, handler: Function
) -> None:
    hosts = site.take(3)
    tree = site.plant(60, hosts)
    submit(shell, store, "turns", tree.url(0), 0.3)
    turns = 0
    while True:
        # Nine seconds, of which two are the grace time and five the reserve.
        summary = handler.invoke(SCHEDULE, 9)
        turns += 1
        if summary["idle"]:
            break
        assert summary["seconds"] < 9
        assert shell.counts("turns", "--store", store.url)["counts"]["leased"] == 0
        # As Lambda does between invocations. Nothing may depend on what happens meanwhile.
        handler.freeze()
        assert shell.counts("turns", "--store", store.url)["counts"]["leased"] == 0
        handler.thaw()
    assert turns > 1
    assert sorted(records(store)) == sorted(tree.walk())
    assert shell.counts("turns", "--store", store.url)["state"] == "finished"
    assert site.judge(*hosts).impolite(0.3) == []
    assert handler.invoke(SCHEDULE, 9)["pages"] == 0


def test_a_function_that_is_killed_in_the_middle_loses_nothing(
    site: Site, store: Server, shell: Shell, handler: Function
) -> None:
    hosts = site.take(3)
    tree = site.plant(40, hosts)
    submit(shell, store, "killed", tree.url(0), 0.2)
    handler.begin(SCHEDULE, 60)
    wait_until(lambda: len(site.requests(*hosts)) > 12, "it is at work")
    handler.kill()
    assert handler.invoke(SCHEDULE, 60)["idle"] is True
    assert sorted(set(records(store))) == sorted(tree.walk())
    assert site.judge(*hosts).hasty(0.2) == []


def test_a_timeout_that_is_too_short_is_an_error_that_names_the_setting(
    store: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_STORE", store.url)
    short = type("Context", (), {"get_remaining_time_in_millis": lambda self: 3000})()
    with pytest.raises(Exception, match=r"3 s is too short.*SHOAL_WORKER_GRACE_SECONDS"):
        lambda_handler(SCHEDULE, short)


def test_a_batch_of_a_queue_fails_partially_and_invalid_requests_become_dead_letters(
    site: Site, store: Server, handler: Function
) -> None:
    boto3 = pytest.importorskip("boto3")
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        sqs = boto3.client(
            "sqs", endpoint_url=f"http://{host}:{port}", region_name="eu-west-1", aws_access_key_id="a",
            aws_secret_access_key="b",
        )  # fmt: skip
        dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "2"})
        requests = sqs.create_queue(
            QueueName="requests", Attributes={"RedrivePolicy": policy, "VisibilityTimeout": "0"}
        )["QueueUrl"]
        (name,) = site.take()
        good = json.dumps({"seeds": [site.at(name, "/", page())], "delay_seconds": 0})
        bad = [
            "no JSON",
            json.dumps({"seeds": []}),
            json.dumps({"seeds": ["http://x.example/"], "ignore_robots": True}),
        ]
        for body in (good, *bad):
            sqs.send_message(QueueUrl=requests, MessageBody=body)
        failed: list[Any] = []
        for _ in range(6):
            messages = sqs.receive_message(QueueUrl=requests, MaxNumberOfMessages=10).get("Messages", [])
            if not messages:
                break
            event = {"Records": [_record(message) for message in messages]}
            failures = {failure["itemIdentifier"] for failure in handler.invoke(event, 30)["batchItemFailures"]}
            failed.append(len(failures))
            for message in messages:
                if message["MessageId"] not in failures:
                    sqs.delete_message(QueueUrl=requests, ReceiptHandle=message["ReceiptHandle"])
        assert failed == [3, 3]
        letters = sqs.receive_message(QueueUrl=dead, MaxNumberOfMessages=10)["Messages"]
        assert sorted(letter["Body"] for letter in letters) == sorted(bad)
        assert handler.invoke(SCHEDULE, 30)["pages"] == 1
        assert records(store) == [f"http://{name}/"]
    finally:
        server.stop()


def test_a_message_that_is_delivered_twice_is_one_crawl(
    site: Site, store: Server, shell: Shell, handler: Function
) -> None:
    (name,) = site.take()
    message = {"MessageId": "m-1", "Body": json.dumps({"seeds": [site.at(name, "/")]}), "ReceiptHandle": ""}
    for _ in range(2):
        assert handler.invoke({"Records": [_record(message)]}, 30) == {"batchItemFailures": []}
    result = shell.run("crawls", "--store", store.url)
    assert result.out.count("m-1-") == 1, result.out


def test_all_records_of_a_fifo_queue_after_a_failure_are_kept_in_order(
    site: Site, store: Server, handler: Function
) -> None:
    (name,) = site.take()
    good = json.dumps({"seeds": [site.at(name, "/")]})
    batch = [_record({"MessageId": str(n), "Body": body}, ".fifo") for n, body in enumerate((good, "bad", good))]
    assert [failure["itemIdentifier"] for failure in handler.invoke({"Records": batch}, 30)["batchItemFailures"]] == [
        "1",
        "2",
    ]
    batch = [{**record, "eventSourceARN": "arn:aws:sqs:eu-west-1:1:plain"} for record in batch]
    assert [failure["itemIdentifier"] for failure in handler.invoke({"Records": batch}, 30)["batchItemFailures"]] == [
        "1"
    ]


def _record(message: dict[str, Any], suffix: str = "") -> dict[str, Any]:
    """A message as Lambda's poller passes it on."""
    return {
        "messageId": message["MessageId"], "body": message["Body"], "eventSource": "aws:sqs",
        "eventSourceARN": f"arn:aws:sqs:eu-west-1:1:requests{suffix}",
    }  # fmt: skip
