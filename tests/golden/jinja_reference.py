"""Jinja as model libraries run it on chat templates: the reference of model/jinja."""
import datetime
import functools
import json

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

NOW = datetime.datetime(2026, 3, 7, 9, 5, 3)
NOW_SECONDS = int(NOW.replace(tzinfo=datetime.timezone.utc).timestamp())


class Generation(jinja2.ext.Extension):
    """{% generation %} marks what the model wrote; the text stays as it is."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


@functools.lru_cache(maxsize=16)
def compiled(source):
    return environment().from_string(source)


def render(source, variables):
    """(text, None) or (None, what went wrong)."""
    try:
        text = compiled(source).render(**variables)
        text.encode("utf-8")
        return text, None
    except Exception as error:  # Whatever a template does, it is an answer to record.
        return None, f"{type(error).__name__}: {error}"
