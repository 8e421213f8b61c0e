"""The little of Bicep that deploy/azure uses, as the ARM template that it means.

pycep parses; this writes what the Bicep compiler would write, without its metadata. Anything that it
does not know is an error, so a file that passes has been understood as a whole. pycep does not tell a
quoted word from a name: a literal must not be spelt like a parameter, variable or resource.
"""

import re
from pathlib import Path
from typing import Any

from pycep import BicepParser

SCHEMA = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
FUNCTIONS = {
    "empty": "empty",
    "guid": "guid",
    "subscription_resource_id": "subscriptionResourceId",
    "resource_group": "resourceGroup",
}
_INTERPOLATION = re.compile(r"\$\{([^}]*)\}")


def to_arm(path: Path) -> dict[str, Any]:
    parsed: Any = BicepParser().parse(text=path.read_text(encoding="utf-8"))
    return _Template(parsed).render()


class _Template:
    def __init__(self, parsed: dict[str, Any]) -> None:
        self.parsed = parsed
        self.resources: dict[str, dict[str, Any]] = parsed["resources"]

    def render(self) -> dict[str, Any]:
        return {
            "$schema": SCHEMA,
            "contentVersion": "1.0.0.0",
            "parameters": {k: self.parameter(v) for k, v in self.parsed["parameters"].items()},
            "variables": {k: self.value(v["value"]) for k, v in self.parsed["variables"].items()},
            "resources": [
                self.resource(r) for r in self.resources.values() if not r["existing"]
            ],
            "outputs": {
                name: {"type": o["type"], **described(o), "value": self.value(o["value"])}
                for name, o in self.parsed["outputs"].items()
            },
        }  # fmt: skip

    def parameter(self, parameter: dict[str, Any]) -> dict[str, Any]:
        names = {"allowed": "allowedValues", "min_value": "minValue", "max_value": "maxValue"}
        decorators = {d["type"]: d.get("argument") for d in parameter["decorators"]}
        secure = (
            {"string": "securestring", "object": "secureObject"} if "secure" in decorators else {}
        )
        rendered = {
            "type": secure.get(parameter["type"], parameter["type"]),
            **described(parameter),
        }
        rendered |= {names[k]: v for k, v in decorators.items() if k in names}
        if parameter["default"] is not None:
            rendered["defaultValue"] = self.value(parameter["default"])
        return rendered

    def resource(self, resource: dict[str, Any]) -> dict[str, Any]:
        config = resource["config"]
        head: dict[str, Any] = {}
        if "condition" in config:
            head["condition"] = self.value(config["condition"])
            config = config["config"]
        head |= {"type": resource["type"], "apiVersion": resource["api_version"]}
        depends = sorted({d for d in self.used(config) if not self.resources[d]["existing"]})
        body = {k: v for k, v in config.items() if k not in {"parent", "scope", "name"}}
        if "scope" in config:
            head["scope"] = f"[{self.resource_id(config['scope'])}]"
        name = self.expression(config["name"])
        if "parent" in config:
            parent = self.expression(self.config_of(config["parent"])["name"])
            name = f"format('{{0}}/{{1}}', {parent}, {name})"
        head["name"] = f"[{name}]"
        if depends:
            head["dependsOn"] = [f"[{self.resource_id(symbol)}]" for symbol in depends]
        return head | {key: self.value(value) for key, value in body.items()}

    def config_of(self, symbol: str) -> dict[str, Any]:
        config: dict[str, Any] = self.resources[symbol]["config"]
        return config["config"] if "condition" in config else config

    def resource_id(self, symbol: str) -> str:
        name = self.expression(self.config_of(symbol)["name"])
        return f"resourceId('{self.resources[symbol]['type']}', {name})"

    def used(self, value: Any) -> set[str]:
        """Every resource that a value speaks of."""
        if isinstance(value, dict):
            return set().union(*(self.used(v) | self.used(k) for k, v in value.items()), set())
        if isinstance(value, list):
            return set().union(*(self.used(v) for v in value), set())
        words = {value, *(m.partition(".")[0] for m in _INTERPOLATION.findall(str(value)))}
        return {word for word in words if word in self.resources}

    def value(self, value: Any) -> Any:
        """A JSON value; what is not literal becomes an expression in brackets."""
        if isinstance(value, dict) and not (value.keys() & {"operator", "function"}):
            return {self.key(k): self.value(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self.value(v) for v in value]
        if isinstance(value, str | dict):
            expression = self.expression(value)
            is_literal = isinstance(value, str) and expression == f"'{value}'"
            return value if is_literal else f"[{expression}]"
        return value

    def key(self, key: str) -> str:
        return f"[{self.expression(key.strip(chr(39)))}]" if "${" in key else key

    def expression(self, value: Any) -> str:
        match value:
            case {"function": {"type": kind, "parameters": given}}:
                arguments = ", ".join(self.expression(v) for v in given.values() if v is not None)
                return f"{FUNCTIONS[kind]}({arguments})"
            case {"operator": {"type": kind, "operands": operands}}:
                return self.operator(kind, list(operands.values()))
            case None:
                return "null()"
            case []:
                return "createArray()"
            case str():
                return self.word(value)
            case _:
                raise NotImplementedError(f"no Bicep that is understood here: {value!r}")

    def operator(self, kind: str, operands: list[Any]) -> str:
        if kind == "property_accessor":
            return self.accessor(operands)
        name = {"not": "not", "equals": "equals", "conditional": "if"}[kind]
        return f"{name}({', '.join(self.expression(o) for o in operands)})"

    def accessor(self, operands: list[Any]) -> str:
        """`identity.properties.principalId` is what reference() of its id says."""
        base, rest = operands
        if base not in self.resources if isinstance(base, str) else True:
            return f"{self.expression(base)}.{rest}"
        _, name = rest["operator"]["operands"].values()
        version = self.resources[base]["api_version"]
        return f"reference({self.resource_id(base)}, '{version}').{name}"

    def word(self, text: str) -> str:
        parts = _INTERPOLATION.findall(text)
        if parts:
            form = text
            for number, part in enumerate(parts):
                form = form.replace(f"${{{part}}}", f"{{{number}}}")
            return f"format('{form}', {', '.join(self.word(p) for p in parts)})"
        symbol, _, attribute = text.partition(".")
        if symbol in self.resources and attribute == "id":
            return self.resource_id(symbol)
        if text in self.parsed["parameters"]:
            return f"parameters('{text}')"
        if text in self.parsed["variables"]:
            return f"variables('{text}')"
        return f"'{text}'"


def described(thing: dict[str, Any]) -> dict[str, Any]:
    texts = [d["argument"] for d in thing["decorators"] if d["type"] == "description"]
    return {"metadata": {"description": texts[0]}} if texts else {}
