"""Commands called in this process through click's test runner."""

import json

from click.testing import CliRunner

from rlenv._scripts.main import main


def run(*args):
    return CliRunner().invoke(main, [str(arg) for arg in args])


def done(*args):
    """Return the outcome of a command that ends well."""
    outcome = run(*args)
    assert outcome.exit_code == 0, outcome.output
    return outcome


def run_jobs(jobs, limit, threads, gpus=()):
    """Stand in for `rlenv._scripts.process.children.run_jobs`: each start of Python takes seconds."""
    for job in jobs:
        outcome = run(*job.command[3:])
        crash = "" if isinstance(outcome.exception, SystemExit | None) else repr(outcome.exception)
        job.log.write_text(f"command\n{outcome.output}{crash}")
        yield job, outcome.exit_code


def result_of(outcome, code=0):
    """Return what --json printed."""
    assert outcome.exit_code == code, outcome.output
    return json.loads(outcome.stdout.strip().splitlines()[-1])


def error_of(outcome):
    """Return the one line about bad input."""
    assert outcome.exit_code == 2, outcome.output
    (line,) = [line for line in outcome.stderr.splitlines() if line.strip()]
    return line
