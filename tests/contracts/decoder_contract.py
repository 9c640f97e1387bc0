"""The suite of decoders as it runs here: `make test` draws what takes long."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from windrow.ingest.native.calling import Compiled
from windrow.ingest.ports.decoder import Decoder
from windrow.ingest.testing.contracts import decoder as public
from windrow.ingest.testing.contracts.values import verdicts


class DecoderContract(public.DecoderContract):
    """The promises."""

    @pytest.mark.some(1)
    @pytest.mark.slow
    def test_monsters_cost_themselves_only(self, decoder: Decoder) -> None:
        """Megabytes between good messages leave these as they are."""
        super().test_monsters_cost_themselves_only(decoder)

    def test_nobody_waits_for_machine_code(
        self, decoder: Decoder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where a format's is not made yet, each message gets the same verdict without it."""
        values = [*self.GOOD, None, *self.BAD, b"", *self.GOOD]
        expected = verdicts(self.decoded(decoder, values))

        def without(code: Compiled, name: str) -> Any:
            assert name == "ready" or name.startswith("_"), f"{name} is asked for"
            return object.__getattribute__(code, name)

        monkeypatch.setattr(Compiled, "ready", lambda _: False)
        monkeypatch.setattr(Compiled, "__getattribute__", without)
        with ThreadPoolExecutor(1) as anew:  # what a thread has opened it keeps
            assert verdicts(anew.submit(self.decoded, decoder, values).result(60)) == expected
