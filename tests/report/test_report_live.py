"""The page served while a run goes on: a real server, a real browser, and a real process."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from report_runs import episode, metrics, research_run, robot_run, write_lines
from runs import start_wmrl
from wmrl_envs.errors import ConfigurationError
from wmrl_envs.report import ReportServer


@contextmanager
def serving(*paths: Path) -> Iterator[str]:
    server = ReportServer(list(paths))
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server.url
    finally:
        server.close()
        thread.join(timeout=20)
        assert not thread.is_alive()


def ask(url: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    place = urlsplit(url)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=20)
    connection.putrequest("GET", path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return found


def test_an_unchanged_run_is_not_sent_again(tmp_path: Path) -> None:
    run = research_run(tmp_path / "run", finished=False)
    with serving(run) as url:
        status, headers, body = ask(url, "/data.json")
        assert status == 200 and json.loads(body)["title"] == "run"
        status, again, body = ask(url, "/data.json", If_None_Match=headers["ETag"])
        assert (status, body, again["ETag"]) == (304, b"", headers["ETag"])
        metrics(15).to_csv(run / "metrics.csv", index=False)
        status, headers, body = ask(url, "/data.json", If_None_Match=headers["ETag"])
        assert status == 200 and "step 15 of 12" in json.loads(body)["runs"][0]["words"]


def test_names_of_others_are_refused(tmp_path: Path) -> None:
    with serving(research_run(tmp_path / "run")) as url:
        port = urlsplit(url).port
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}", f"[::1]:{port}"):
            assert ask(url, "/data.json", Host=host)[0] == 200
        for host in (
            f"example.org:{port}",
            "localhost",
            "127.0.0.1:1",
            f"localhost.example.org:{port}",
            "",
            f"10.0.0.1:{port}",
        ):
            status, _, body = ask(url, "/data.json", Host=host)
            assert (status, body) == (421, b"This address is not served here.\n"), host


def test_nothing_but_the_page_its_data_and_its_videos(tmp_path: Path) -> None:
    run = robot_run(tmp_path / "arm")
    with serving(run) as url:
        _, headers, page = ask(url, "/")
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert b"data-live" in page
        videos = [video["src"] for video in json.loads(ask(url, "/data.json")[2])["videos"]]
        whole = ask(url, f"/{videos[0]}")[2]
        assert whole in {path.read_bytes() for path in (run / "videos").iterdir()}
        status, headers, part = ask(url, f"/{videos[0]}", Range="bytes=10-19")
        assert (status, part) == (206, whole[10:20])
        assert headers["Content-Range"] == f"bytes 10-19/{len(whole)}"
        assert ask(url, f"/{videos[0]}", Range="bytes=10-")[2] == whole[10:]
        assert ask(url, f"/{videos[0]}", Range=f"bytes={len(whole)}-")[0] == 416
        for path in (
            "/config.json",
            "/../config.json",
            "/videos/../config.json",
            "/videos/0123456789abcdef.mp4",
            "//etc/passwd",
        ):
            assert ask(url, path)[0] == 404, path


def test_a_folder_that_goes_away_is_told(tmp_path: Path) -> None:
    run = research_run(tmp_path / "run")
    with serving(run) as url:
        (run / "config.json").unlink()
        status, _, body = ask(url, "/data.json")
        assert status == 503 and str(run) in body.decode()


def test_an_address_that_cannot_be_taken(tmp_path: Path) -> None:
    run = research_run(tmp_path / "run")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"nothing can be served at 127.0.0.1, port {port} .*--port"):
            ReportServer([run], port=port)
    with pytest.raises(ConfigurationError, match="nowhere does not exist; a run folder is"):
        ReportServer([tmp_path / "nowhere"])


def test_the_page_follows_a_run_and_keeps_what_a_reader_chose(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    run = research_run(
        tmp_path / "run", steps=40, finished=False, episodes=[episode(1, n, anchor=n < 3) for n in range(9)]
    )
    metrics(12).to_csv(run / "metrics.csv", index=False)
    with serving(run) as url:
        page = open_page(url)
        expect(page.locator("#live")).to_have_text("Live")
        expect(page.locator(".state").first).to_contain_text("step 12 of 40")
        browser = page.locator("#trajectories")
        browser.get_by_label("Episodes", exact=True).first.select_option("anchor")
        browser.get_by_label("Text").fill("no column")
        browser.locator(".row").nth(2).click()
        page.evaluate("() => { window.kept = true; window.scrollTo({ top: 700, behavior: 'instant' }); }")
        place = "() => document.querySelector('.picker').nextElementSibling.getBoundingClientRect().top"
        before = page.evaluate(place)

        metrics(13).to_csv(run / "metrics.csv", index=False)
        write_lines(run / "trajectories.jsonl", [episode(1 + n // 9, n, anchor=n % 9 < 3) for n in range(18)])
        expect(page.locator(".state").first).to_contain_text("step 13 of 40", timeout=15000)
        expect(browser.locator(".count")).to_have_text("6 of 18 episodes")
        assert browser.get_by_label("Text").input_value() == "no column"
        expect(browser.locator(".row[aria-current]")).to_have_attribute("data-key", "run 1 2")
        expect(browser.locator(".detail")).to_contain_text("episode 2")
        # What is read stays where it is, also where a line above it was added.
        assert page.evaluate(place) == pytest.approx(before, abs=2)
        assert page.evaluate("() => window.kept")
        assert page.wrong == []  # type: ignore[attr-defined]
    expect(page.locator("#live")).to_contain_text("No answer", timeout=15000)


def test_a_video_is_streamed(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    run = robot_run(tmp_path / "arm")
    with serving(run) as url:
        page = open_page(url)
        page.locator("#rollouts").scroll_into_view_if_needed()
        video = page.locator("#rollouts video").first
        video.scroll_into_view_if_needed()
        video.evaluate("(one) => one.play()")
        page.wait_for_function("() => document.querySelector('#rollouts video').currentTime > 0.2")
        # It plays on while others come and go.
        (run / "videos" / "a-new-one-12.mp4").write_bytes((run / "videos" / "drawer-open-77.mp4").read_bytes())
        expect(page.locator("#rollouts li")).to_have_count(3, timeout=15000)
        expect(page.locator("#rollouts li h3").first).to_have_text("after training: a-new-one")
        playing = "() => [...document.querySelectorAll('#rollouts video')].filter((one) => !one.paused).length"
        assert page.evaluate(playing) == 1


def test_the_command_prints_its_address_and_ends_on_an_interrupt(tmp_path: Path) -> None:
    run = research_run(tmp_path / "run")
    process = start_wmrl("watch", str(run), folder=tmp_path)
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"http://127\.0\.0\.1:\d+/", line)
    assert found is not None, (line, process.communicate())
    assert ask(found[0], "/")[0] == 200
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "stopped watching; runs go on\n", "")
