"""The contract of decoders with this project's marks, by which `make test` samples slow tests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from windrow.ingest.native.calling import Compiled
from windrow.ingest.ports.decoder import Decoder
from windrow.ingest.testing.contracts import decoder as public
from windrow.ingest.testing.contracts.values import verdicts


class DecoderContract(public.DecoderContract):
    """The promises of a decoder, with marks."""

    @pytest.mark.some(1)
    @pytest.mark.slow
    def test_monsters_cost_themselves_only(self, decoder: Decoder) -> None:
        """Huge values of megabytes don't change the good messages around them."""
        super().test_monsters_cost_themselves_only(decoder)

    def test_nobody_waits_for_machine_code(
        self, decoder: Decoder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Until a format's machine code is ready, each message gets the same verdict without it."""
        values = [*self.GOOD, None, *self.BAD, b"", *self.GOOD]
        expected = verdicts(self.decode_values(decoder, values))

        def without(code: Compiled, name: str) -> Any:
            assert name == "ready" or name.startswith("_"), f"{name} is asked for"
            return object.__getattribute__(code, name)

        monkeypatch.setattr(Compiled, "ready", lambda _: False)
        monkeypatch.setattr(Compiled, "__getattribute__", without)
        with ThreadPoolExecutor(1) as anew:  # a thread keeps what it opened, so this one is new
            assert verdicts(anew.submit(self.decode_values, decoder, values).result(60)) == expected
